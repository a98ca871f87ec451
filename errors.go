package calinix

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// apiError is an answer of Calinix's own, in the form that OpenAI's clients
// read: {"error":{"message","type","param":null,"code"}}.
type apiError struct {
	status  int
	code    string // machine-readable, e.g. "no_pod_available"
	message string
	// retryAfter is sent as Retry-After in seconds where it is positive.
	retryAfter int
}

// badBody is the answer to a body that cannot be read as what it is to be.
func badBody(message string) *apiError {
	return &apiError{status: http.StatusBadRequest, code: "bad_body", message: message}
}

// Error implements error for logs.
func (e *apiError) Error() string { return e.message }

// kind is the "type" member, as OpenAI names the classes.
func (e *apiError) kind() string {
	switch {
	case e.status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case e.status < http.StatusInternalServerError:
		return "invalid_request_error"
	default:
		return "server_error"
	}
}

// write sends e. The header map may hold routing headers already; those stay.
func (e *apiError) write(w http.ResponseWriter) {
	type detail struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	payload, err := json.Marshal(struct {
		Error detail `json:"error"`
	}{detail{Message: e.message, Type: e.kind(), Code: e.code}})
	if err != nil {
		// Strings always encode; this keeps the status if they ever do not.
		payload = []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":"internal_error"}}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(payload)))
	h.Set("X-Content-Type-Options", "nosniff")
	if e.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(e.retryAfter))
	}
	w.WriteHeader(e.status)
	_, _ = w.Write(payload)
}
