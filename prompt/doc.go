// Package prompt reads a request body: one scan of the JSON, from which comes
// what routing needs and nothing else.
//
// Its part of a request's way is the second half of Prepare. Root has the body
// in memory; Parse finds the API's prompt in it and renders it to one text,
// which chain cuts into blocks; model, salts and what else separates caches
// become the chain's seed. Beside them stand the session key and the few facts
// by which root decides (stream, n, several prompts). The body is never
// changed, and never kept beyond the Request.
//
// # The rendered prompt
//
// Text names the prompt as an engine would render it: equal prompts have equal
// texts, and a conversation's text begins with the text of its earlier turns.
// It is made of decoded strings, so it does not depend on the client's escapes
// or spaces, and it is the same for the same conversation in chat, responses
// and messages. Its order is that of most chat templates: tools, documents,
// system, then the turns as sent.
//
// A turn begins with one marker, a token of its own: the byte 0x01 and a
// letter for the role (s system, d developer, u user, a assistant, t tool, f
// function, x any other and a hash of its name). Then follows its content. So
// the number of whitespace-separated tokens is that of the contents plus one a
// turn. Everything is separated by one newline. Within a turn stand
//
//   - texts, as they are; several parts as if one text with a newline between
//   - \x01h reasoning, \x01r a refusal, each followed by its text; a plain text
//     after one of these (or after a call) is announced by \x01=
//   - \x01c a tool call: its name and its arguments as JSON in short form
//   - one token for what is not text: \x01n the author's name, \x01p something
//     stored at the engine, \x01o anything else, each with 64 bits of hash in
//     place of the data
//   - 64 equal tokens of the same form for each of the media: \x01i image,
//     \x01v video, \x01w sound, \x01e file
//
// and before the turns \x01F with a tool definition and \x01D with documents, as
// JSON in short form: no spaces, no escapes but the necessary ones, members in
// the order as sent, a function's name, description and parameters first. A
// completion prompt is its text without any marker; between several prompts
// stands \x01p. Token ids are written in decimal, separated by spaces.
//
// Text cannot forge a marker: JSON admits a control character only as an
// escape, and a decoded 0x01 is written twice, which no marker is.
//
// # Media
//
// Engines turn an image into some hundred tokens, a sound or a file into as many
// and more; how many depends on model and picture, and is not known here. With 64
// tokens an image fills whole blocks (four of the default size), so that the second
// turn of a chat that is mostly an image finds them. Its 64·14 bytes stand for 224
// estimated tokens of the engine.
//
// An image is known by its URL, else by its data and their type (as the data URL
// that they make), else by the id of a stored file, else by all members of its
// part. Of more than 1024 media in a prompt the later ones are one token each, so
// that a body of very many tiny parts does not swell to a large multiple of its size.
//
// # What is left out
//
// Ids of tool calls and the like (most templates do not render them, they would
// only separate equal prompts); strict, defer_loading and cache_control;
// redacted thinking; detail of images; x-anthropic-billing-header blocks of
// system prompts, which change with every request of Claude Code and which
// engines remove (vLLM pull request 36829). Members that change the prompt in
// a way that only the engine knows (chat_template, chat_template_kwargs,
// mm_processor_kwargs, reasoning effort, lora_path, extra_key) go into the
// seed: two requests that differ there share nothing.
//
// # What counts as JSON
//
// Internal/jsonscan's rules: those of encoding/json, and UTF-8 throughout. Half
// a surrogate pair, which Python's json accepts, reads as U+FFFD. Of duplicate
// members the last counts, at every level that is looked into; names are
// compared decoded and with regard to case. A member of the wrong type is
// treated as absent, unless it is the prompt itself.
package prompt
