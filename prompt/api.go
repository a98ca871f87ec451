package prompt

import "strings"

// API is the shape of a request body.
type API uint8

// The APIs whose prompts are known. Other is any other request: its model and
// session are read if it is a JSON object, its prompt is not.
const (
	Other       API = iota
	Chat            // POST …/v1/chat/completions
	Completions     // POST …/v1/completions
	Embeddings      // POST …/v1/embeddings
	Responses       // POST …/v1/responses
	Messages        // POST …/v1/messages
)

// APIOf tells the API by a request's method and the path of its URL, which may
// have a prefix.
func APIOf(method, path string) API {
	if method != "POST" {
		return Other
	}
	i := strings.LastIndex(path, "/v1/")
	if i < 0 {
		return Other
	}
	switch path[i+len("/v1/"):] {
	case "chat/completions":
		return Chat
	case "completions":
		return Completions
	case "embeddings":
		return Embeddings
	case "responses":
		return Responses
	case "messages":
		return Messages
	}
	return Other
}

// generates reports whether the API answers with generated text.
func (a API) generates() bool {
	return a == Chat || a == Completions || a == Responses || a == Messages
}
