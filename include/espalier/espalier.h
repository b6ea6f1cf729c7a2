/* Espalier for C callers (and every language that can call C): open a model, ask it.
 *
 *   espalier_engine* engine = NULL;
 *   espalier_open_options open = ESPALIER_OPEN_OPTIONS_INIT;
 *   open.model = "LFM2-350M";
 *   espalier_status* status = espalier_open(&open, &engine);
 *   if (status) { puts(espalier_status_message(status)); espalier_status_free(status); }
 *
 * Text      UTF-8, ended by a zero byte. What a function returns as `const char*` belongs to the handle that it came from.
 * Errors    a function that can fail returns NULL when it has not, else a status to be freed.
 * Threads   an engine from any; a request from one at a time, but espalier_cancel from any (and from a signal handler).
 * Layout    a struct begins with its size, so that a library newer or older than the header knows which fields are there.
 *           The INIT macros set it; all other fields start as zero, which means "absent".
 */
#ifndef ESPALIER_ESPALIER_H
#define ESPALIER_ESPALIER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

const char* espalier_version(void); /* "0.1.0" */

typedef struct espalier_status espalier_status;
typedef struct espalier_engine espalier_engine;
typedef struct espalier_request espalier_request;
typedef struct espalier_answer espalier_answer;

typedef enum espalier_code {
  ESPALIER_OK = 0,
  ESPALIER_INVALID_ARGUMENT = 1,
  ESPALIER_CORRUPT = 2,
  ESPALIER_UNSUPPORTED = 3,
  ESPALIER_NOT_FOUND = 4,
  ESPALIER_IO = 5,
  ESPALIER_OUT_OF_MEMORY = 6,
  ESPALIER_CANCELLED = 7,
  ESPALIER_INTERNAL = 8
} espalier_code;

espalier_code espalier_status_code(const espalier_status* status);       /* NULL: ESPALIER_OK */
const char* espalier_status_message(const espalier_status* status);      /* a sentence; NULL: "" */
const char* espalier_status_field(const espalier_status* status);        /* the option or JSON field at fault, or "" */
void espalier_status_free(espalier_status* status);                      /* NULL is fine, here and below */

typedef struct espalier_open_options {
  size_t size;
  const char* model;   /* a folder or a .gguf file */
  const char* unit;    /* NULL: "cpu" */
  const char* weights; /* NULL: "auto" */
  const char* kv;      /* NULL: "fp16" */
  uint32_t threads;    /* 0: what this process may use */
  int64_t context;     /* 0: what the model was made for */
  int no_cache;        /* 1: neither reads nor writes the cache of packed weights */
  int (*on_progress)(uint64_t done, uint64_t total, void* user); /* NULL, or: returning 0 ends the opening */
  void* user;
  const char* speculate; /* NULL: "auto"; "off", "chain:N", "tree:N". No text changes with it */
  const char* drafter;   /* NULL: drafter/ beside the model, where there is one; a folder or a .gguf file */
} espalier_open_options;
#define ESPALIER_OPEN_OPTIONS_INIT {sizeof(espalier_open_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

espalier_status* espalier_open(const espalier_open_options* options, espalier_engine** engine);
/* Requests hold on to their engine: the order of closing does not matter. */
void espalier_close(espalier_engine* engine);

/* `body`: an OpenAI chat body as JSON: "messages", "tools", and the options of docs/json.md ("temperature", "max_tokens", ...). */
espalier_status* espalier_request_new(espalier_engine* engine, const char* body, espalier_request** request);
/* Plain text without a template. `options`: as JSON, or NULL. */
espalier_status* espalier_request_raw(espalier_engine* engine, const char* text, const char* options, espalier_request** request);
void espalier_request_free(espalier_request* request);

typedef enum espalier_delta_kind { ESPALIER_TEXT = 0, ESPALIER_REASONING = 1, ESPALIER_TOOL_CALL = 2 } espalier_delta_kind;

typedef struct espalier_callbacks {
  size_t size;
  /* Called on the thread of espalier_run. A tool call comes as JSON: {"id", "name", "arguments"}. Returning 0 cancels. */
  int (*on_delta)(espalier_delta_kind kind, const char* text, size_t length, void* user);
  int (*on_prefill)(int64_t done, int64_t total, void* user);
  void* user;
} espalier_callbacks;
#define ESPALIER_CALLBACKS_INIT {sizeof(espalier_callbacks), 0, 0, 0}

/* Blocks until the answer is complete. Once a request. `callbacks` may be NULL. */
espalier_status* espalier_run(espalier_request* request, const espalier_callbacks* callbacks, espalier_answer** answer);
void espalier_cancel(espalier_request* request);

typedef struct espalier_timings {
  size_t size; /* set by the caller */
  double load_ms, prefill_ms, decode_ms, ttft_ms;
  int64_t prefill_tokens, reused_tokens, decode_tokens;
} espalier_timings;
#define ESPALIER_TIMINGS_INIT {sizeof(espalier_timings), 0, 0, 0, 0, 0, 0, 0}

const char* espalier_answer_text(const espalier_answer* answer);
const char* espalier_answer_finish_reason(const espalier_answer* answer); /* "stop", "tool_calls", "length", "cancelled" */
const char* espalier_answer_json(const espalier_answer* answer);          /* all of it (docs/json.md) */
size_t espalier_answer_token_ids(const espalier_answer* answer, const int32_t** ids);
void espalier_answer_timings(const espalier_answer* answer, espalier_timings* timings);
void espalier_answer_free(espalier_answer* answer);

#ifdef __cplusplus
}
#endif

#endif
