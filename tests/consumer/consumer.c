/* The same in C. */
#include <espalier/espalier.h>
#include <stdio.h>
#include <string.h>

static size_t streamed;
static int on_delta(espalier_delta_kind kind, const char* text, size_t length, void* user) {
  (void)user;
  if (kind == ESPALIER_TEXT && strlen(text) <= length) streamed += length;
  return 1;
}

static int fail(espalier_status* status, int code) {
  fprintf(stderr, "%s (%s)\n", espalier_status_message(status), espalier_status_field(status));
  espalier_status_free(status);
  return code;
}

int main(int argc, char** argv) {
  espalier_open_options open = ESPALIER_OPEN_OPTIONS_INIT;
  espalier_callbacks callbacks = ESPALIER_CALLBACKS_INIT;
  espalier_timings timings = ESPALIER_TIMINGS_INIT;
  espalier_engine* engine = NULL;
  espalier_request* request = NULL;
  espalier_answer* answer = NULL;
  espalier_status* status;
  const int32_t* ids;
  size_t i, n;
  if (argc != 2) return 2;
  open.model = argv[1];
  open.threads = 1;
  if ((status = espalier_open(&open, &engine)) != NULL) return fail(status, 1);
  status = espalier_request_raw(engine, "x", "{\"temperature\": -1}", &request);
  if (espalier_status_code(status) != ESPALIER_INVALID_ARGUMENT || strcmp(espalier_status_field(status), "temperature") != 0) return fail(status, 3);
  espalier_status_free(status);
  if ((status = espalier_request_raw(engine, "hello", "{\"temperature\": 0, \"max_tokens\": 6}", &request)) != NULL) return fail(status, 4);
  espalier_close(engine); /* the request keeps what it needs */
  callbacks.on_delta = on_delta;
  if ((status = espalier_run(request, &callbacks, &answer)) != NULL) return fail(status, 5);
  espalier_answer_timings(answer, &timings);
  if (streamed != strlen(espalier_answer_text(answer)) && streamed == 0) return 6;
  if (timings.prefill_tokens == 0 || strstr(espalier_answer_json(answer), "\"finish_reason\"") == NULL) return 7;
  n = espalier_answer_token_ids(answer, &ids);
  for (i = 0; i < n; ++i) printf("%d ", (int)ids[i]);
  printf("%s %s\n", espalier_answer_finish_reason(answer), espalier_version());
  espalier_answer_free(answer);
  espalier_request_free(request);
  return 0;
}
