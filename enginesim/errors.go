package enginesim

import (
	"fmt"
	"net/http"
)

// apiError is a refusal. Its zero status means 400.
type apiError struct {
	status  int
	param   string
	message string
}

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, param: param, message: fmt.Sprintf(format, args...)}
}

// kind is vLLM's type word for the status.
func (a *apiError) kind() string {
	switch a.status {
	case http.StatusNotFound:
		return "NotFoundError"
	case http.StatusInternalServerError:
		return "InternalServerError"
	default:
		return "BadRequestError"
	}
}

// writeError answers in vLLM's form: OpenAI's nesting, with the status as code.
func writeError(w http.ResponseWriter, a *apiError) {
	writeJSON(w, a.status, errorBody(a))
}

// errorBody is an error in vLLM's form.
func errorBody(a *apiError) map[string]any {
	var param *string
	if a.param != "" {
		param = &a.param
	}
	return map[string]any{"error": struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}{a.message, a.kind(), param, a.status}}
}

// writeAnthropicError answers in the form of /v1/messages.
func writeAnthropicError(w http.ResponseWriter, a *apiError) {
	kind := "invalid_request_error"
	switch a.status {
	case http.StatusNotFound:
		kind = "not_found_error"
	case http.StatusInternalServerError:
		kind = "api_error"
	}
	writeJSON(w, a.status, map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": a.message}})
}

// writeDetail answers as FastAPI does where no route fits.
func writeDetail(w http.ResponseWriter, status int) {
	writeJSON(w, status, map[string]string{"detail": http.StatusText(status)})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body := appendJSON(nil, v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the client has left
}
