package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// sdk is the official library twice: through the product, and straight to an
// engine of the same seed, whose answers are the truth.
type sdk struct {
	openai.Client
	direct openai.Client
	plan   *plan
}

// TestGoSDK drives everything that an application does with the library, over
// each protocol, in both modes.
func TestGoSDK(t *testing.T) {
	singleOrDispatch(t, fast, func(t *testing.T, p *plan) {
		s := p.run(t)
		_, url := newEngine(t, fastSettings())
		direct := library(url, http.DefaultClient)
		s.each(t, func(t *testing.T, cl *testcaddy.Client) {
			c := &sdk{library(s.url(), cl.HTTP), direct, p}
			t.Run("chat", func(t *testing.T) { c.chat(t, cl.Protocol.String()+" chat", false) })
			t.Run("chat streamed", func(t *testing.T) { c.chat(t, cl.Protocol.String()+" streamed chat", true) })
			t.Run("tools", func(t *testing.T) { c.tools(t, cl.Protocol.String()+" tools", false) })
			t.Run("tools streamed", func(t *testing.T) { c.tools(t, cl.Protocol.String()+" streamed tools", true) })
			t.Run("parts", func(t *testing.T) { c.parts(t, cl.Protocol.String()) })
			t.Run("completions", c.completions)
			t.Run("embeddings", c.embeddings)
			t.Run("responses", func(t *testing.T) { c.responses(t, cl.Protocol.String()) })
			t.Run("models", c.models)
			t.Run("errors", c.errors)
		})
	})
}

func library(url string, http *http.Client) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("sk-test"), option.WithHTTPClient(http), option.WithMaxRetries(0))
}

// ask sends one chat request both ways, wants the same answer, and returns it
// with the header and the usage of the one through the product.
func (c *sdk) ask(t *testing.T, p openai.ChatCompletionNewParams, streamed bool) (openai.ChatCompletion, http.Header) {
	t.Helper()
	var resp *http.Response
	got, err := complete(t, &c.Client, p, streamed, option.WithResponseInto(&resp))
	if err != nil {
		t.Fatalf("through the product: %v", err)
	}
	want, err := complete(t, &c.direct, p, streamed)
	if err != nil {
		t.Fatalf("straight to the engine: %v", err)
	}
	a, b := got.Choices[0], want.Choices[0]
	if len(got.Choices) != 1 || a.Message.Content != b.Message.Content || a.FinishReason != b.FinishReason || !sameCalls(a.Message.ToolCalls, b.Message.ToolCalls) {
		t.Errorf("the answer is %s, want %s", got.RawJSON(), want.RawJSON())
	}
	if got.Usage.PromptTokens != want.Usage.PromptTokens || got.Usage.CompletionTokens != want.Usage.CompletionTokens || got.Usage.TotalTokens == 0 {
		t.Errorf("usage %+v, want %+v", got.Usage, want.Usage)
	}
	if mode := header(resp.Header, "Mode"); mode != map[bool]string{false: "single", true: "disaggregated"}[c.plan.dispatches()] {
		t.Errorf("x-calinix-mode %q", mode)
	}
	if c.plan.dispatches() && resp.Header.Get("X-Sim-Leg") != "decode" {
		t.Errorf("the engine served a leg %q, want one that loaded handed-over KV", resp.Header.Get("X-Sim-Leg"))
	}
	return got, resp.Header
}

// complete runs one chat completion, through the library's accumulator if
// streamed.
func complete(t *testing.T, c *openai.Client, p openai.ChatCompletionNewParams, streamed bool, opts ...option.RequestOption) (openai.ChatCompletion, error) {
	t.Helper()
	if !streamed {
		whole, err := c.Chat.Completions.New(within(t), p, opts...)
		if err != nil {
			return openai.ChatCompletion{}, err
		}
		return *whole, nil
	}
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.Chat.Completions.NewStreaming(within(t), p, opts...)
	defer stream.Close()
	acc, chunks := openai.ChatCompletionAccumulator{}, 0
	for stream.Next() {
		chunks++
		if !acc.AddChunk(stream.Current()) {
			t.Errorf("a chunk does not fit: %s", stream.Current().RawJSON())
		}
	}
	if stream.Err() != nil {
		return openai.ChatCompletion{}, stream.Err()
	}
	if chunks < int(acc.Usage.CompletionTokens) {
		t.Errorf("%d chunks for %d tokens", chunks, acc.Usage.CompletionTokens)
	}
	return acc.ChatCompletion, nil
}

func sameCalls(a, b []openai.ChatCompletionMessageToolCallUnion) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if a[k].ID != b[k].ID || a[k].Function.Name != b[k].Function.Name || a[k].Function.Arguments != b[k].Function.Arguments {
			return false
		}
	}
	return true
}

// podOf is the pod whose cache an answer's depth speaks of.
func (c *sdk) podOf(h http.Header) string {
	if c.plan.dispatches() {
		return header(h, "Prefill-Pod-Id")
	}
	return header(h, "Target-Pod-Id")
}

// chat talks for six turns and wants each but the first to go to the pod of the
// turn before, with all that is known of it.
func (c *sdk) chat(t *testing.T, name string, streamed bool) {
	messages := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("You take part in the " + name + ". " + prose(name, 30))}
	home := ""
	before := int64(0) // tokens of the prompt before
	for turn := 1; turn <= 6; turn++ {
		messages = append(messages, openai.UserMessage(fmt.Sprintf("Turn %d: %s?", turn, prose(name+fmt.Sprint(turn), 40))))
		got, h := c.ask(t, openai.ChatCompletionNewParams{Model: "m", Messages: messages}, streamed)
		pod, depth := c.podOf(h), depthOf(t, h)
		if turn == 1 {
			home = pod
			if depth != 0 || header(h, "Cache-Hit") != "false" {
				t.Errorf("a first turn found a depth of %d", depth)
			}
		} else if pod != home || header(h, "Cache-Hit") != "true" || int64(depth) < before/16-1 || int64(depth) > before/16+1 {
			t.Errorf("turn %d went to %s with depth %d, want %s and %d ± 1", turn, pod, depth, home, before/16)
		}
		cached := got.Usage.PromptTokensDetails.CachedTokens
		if !c.plan.dispatches() && (cached/16 < int64(depth)-1 || cached/16 > int64(depth)+1) {
			t.Errorf("turn %d: the engine had %d tokens cached, the depth is %d", turn, cached, depth)
		}
		before = got.Usage.PromptTokens
		messages = append(messages, got.Choices[0].Message.ToParam())
	}
}

// tools defines two functions, forces a call of one, hands in its result and
// asks for the answer.
func (c *sdk) tools(t *testing.T, name string, streamed bool) {
	object := func(properties map[string]any) shared.FunctionParameters {
		return shared.FunctionParameters{"type": "object", "properties": properties, "required": []string{"city"}}
	}
	p := openai.ChatCompletionNewParams{
		Model: "m",
		Tools: []openai.ChatCompletionToolUnionParam{
			openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
				Name: "weather", Description: openai.String("The weather of a city: " + prose("weather", 20)),
				Parameters: object(map[string]any{"city": map[string]any{"type": "string"}, "unit": map[string]any{"enum": []string{"°C", "°F"}}}),
			}),
			openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "time", Parameters: object(map[string]any{"city": map[string]any{"type": "string"}})}),
		},
		ToolChoice: openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "weather"}),
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage(prose(name, 30)),
			openai.UserMessage("What is the weather like in " + name + "?"),
		},
	}
	called, first := c.ask(t, p, streamed)
	calls := called.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].Function.Name != "weather" || calls[0].ID == "" {
		t.Fatalf("the forced call: %s", called.RawJSON())
	}
	var arguments struct{ City, Unit string }
	if err := json.Unmarshal([]byte(calls[0].Function.Arguments), &arguments); err != nil || arguments.City == "" || !strings.HasPrefix(arguments.Unit, "°") {
		t.Errorf("arguments %s: %v", calls[0].Function.Arguments, err)
	}
	p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("auto")}
	p.Messages = append(p.Messages, called.Choices[0].Message.ToParam(), openai.ToolMessage(`{"temperature":21,"sky":"clear"}`, calls[0].ID))
	answer, second := c.ask(t, p, streamed)
	if answer.Choices[0].Message.Content == "" || answer.Choices[0].FinishReason != "stop" {
		t.Errorf("the answer: %s", answer.RawJSON())
	}
	if c.podOf(second) != c.podOf(first) || depthOf(t, second) < int(called.Usage.PromptTokens)/16-1 {
		t.Errorf("the result went to %s with depth %d, the question of %d tokens to %s", c.podOf(second), depthOf(t, second), called.Usage.PromptTokens, c.podOf(first))
	}
}

// parts sends content in parts: text, an image by its address and one as data.
// Another image is another prompt.
func (c *sdk) parts(t *testing.T, name string) {
	image := func(url string) openai.ChatCompletionContentPartUnionParam {
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url, Detail: "low"})
	}
	ask := func(pixel string) (int, openai.ChatCompletion) {
		got, h := c.ask(t, openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage(prose("parts "+name, 40)),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
				openai.TextContentPart("Compare these two:"),
				image("https://example.com/" + strings.ReplaceAll(name, " ", "-") + ".png"),
				image("data:image/png;base64," + strings.Repeat(pixel, 4096)),
				openai.TextContentPart("And be brief, for: " + prose(name, 60)),
			}),
		}}, pixel == "AAAB")
		return depthOf(t, h), got
	}
	first, got := ask("AAAA")
	same, _ := ask("AAAA")
	other, _ := ask("AAAB")
	blocks := int(got.Usage.PromptTokens) / 16
	if first != 0 || same < blocks-1 || other < 2 || other > blocks-3 {
		t.Errorf("of %d blocks the pods knew %d of the first, %d of the same, %d of that with another image", blocks, first, same, other)
	}
}

func (c *sdk) completions(t *testing.T) {
	for _, prompt := range []openai.CompletionNewParamsPromptUnion{
		{OfString: openai.String("Once upon a time " + prose("once", 50))},
		{OfArrayOfStrings: []string{"In the beginning", "At the end"}},
		{OfArrayOfTokens: []int64{5, 6, 7, 8, 9}},
		{OfArrayOfTokenArrays: [][]int64{{1, 2, 3}, {4}}},
	} {
		p := openai.CompletionNewParams{Model: "m", Prompt: prompt, MaxTokens: openai.Int(6)}
		var resp *http.Response
		got, err := c.Completions.New(within(t), p, option.WithResponseInto(&resp))
		if err != nil {
			t.Fatal(err)
		}
		if one := len(got.Choices) == 1; (resp.Header.Get("X-Sim-Leg") == "decode") != (one && c.plan.dispatches()) {
			t.Errorf("%d prompts were served as a leg %q", len(got.Choices), resp.Header.Get("X-Sim-Leg"))
		}
		want, err := c.direct.Completions.New(within(t), p)
		if err != nil {
			t.Fatal(err)
		}
		texts := make([]string, len(want.Choices))
		for k := range want.Choices {
			texts[k] = want.Choices[k].Text
			if len(got.Choices) != len(want.Choices) || got.Choices[k].Text != texts[k] || got.Usage.PromptTokens != want.Usage.PromptTokens {
				t.Fatalf("%s, want %s", got.RawJSON(), want.RawJSON())
			}
		}
		stream := c.Completions.NewStreaming(within(t), p)
		said := make([]string, len(texts))
		for stream.Next() {
			for _, choice := range stream.Current().Choices {
				said[choice.Index] += choice.Text
			}
		}
		if stream.Err() != nil || strings.Join(said, "|") != strings.Join(texts, "|") {
			t.Errorf("streamed %q, want %q; %v", said, texts, stream.Err())
		}
	}
}

func (c *sdk) embeddings(t *testing.T) {
	for _, input := range []openai.EmbeddingNewParamsInputUnion{
		{OfString: openai.String("a text " + prose("embedded", 40))},
		{OfArrayOfStrings: []string{"one", "two", "three"}},
		{OfArrayOfTokens: []int64{1, 2, 3}},
	} {
		p := openai.EmbeddingNewParams{Model: "m", Input: input, Dimensions: openai.Int(24)}
		got, err := c.Embeddings.New(within(t), p)
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.direct.Embeddings.New(within(t), p)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Data) == 0 || len(got.Data[0].Embedding) != 24 || fmt.Sprint(got.Data) != fmt.Sprint(want.Data) || got.Usage.PromptTokens != want.Usage.PromptTokens {
			t.Errorf("%s, want %s", got.RawJSON(), want.RawJSON())
		}
	}
}

// responses holds a conversation of two turns through the Responses API.
func (c *sdk) responses(t *testing.T, name string) {
	input := responses.ResponseInputParam{
		responses.ResponseInputItemParamOfMessage("What about "+name+"? "+prose("responses"+name, 60), responses.EasyInputMessageRoleUser),
	}
	home := ""
	for turn := 1; turn <= 2; turn++ {
		p := responses.ResponseNewParams{
			Model: "m", Instructions: openai.String("Be brief, " + name), MaxOutputTokens: openai.Int(9),
			Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input},
		}
		var resp *http.Response
		got, err := c.Responses.New(within(t), p, option.WithResponseInto(&resp))
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.direct.Responses.New(within(t), p)
		if err != nil {
			t.Fatal(err)
		}
		if got.OutputText() == "" || got.OutputText() != want.OutputText() || got.Status != want.Status || got.Usage.InputTokens != want.Usage.InputTokens {
			t.Errorf("%s, want %s", got.RawJSON(), want.RawJSON())
		}
		if turn == 1 {
			home = c.podOf(resp.Header)
		} else if c.podOf(resp.Header) != home || depthOf(t, resp.Header) < 3 {
			t.Errorf("turn 2 went to %s with depth %d, turn 1 to %s", c.podOf(resp.Header), depthOf(t, resp.Header), home)
		}
		stream := c.Responses.NewStreaming(within(t), p)
		text, last := "", ""
		for stream.Next() {
			e := stream.Current()
			last = e.Type
			if e.Type == "response.output_text.delta" {
				text += e.Delta
			}
		}
		if stream.Err() != nil || text != got.OutputText() || last != "response."+string(got.Status) {
			t.Errorf("streamed %q up to %s, want %q; %v", text, last, got.OutputText(), stream.Err())
		}
		input = append(input,
			responses.ResponseInputItemParamOfMessage(got.OutputText(), responses.EasyInputMessageRoleAssistant),
			responses.ResponseInputItemParamOfMessage("And then?", responses.EasyInputMessageRoleUser))
	}
}

func (c *sdk) models(t *testing.T) {
	list, err := c.Models.List(within(t))
	if err != nil || len(list.Data) == 0 || list.Data[0].ID == "" {
		t.Errorf("models %+v: %v", list, err)
	}
}

// errors wants the library to find its way in errors of the engine and of the
// product alike.
func (c *sdk) errors(t *testing.T) {
	p := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
	bad := p
	bad.MaxCompletionTokens = openai.Int(1 << 30)
	for _, streamed := range []bool{false, true} {
		_, err := complete(t, &c.Client, bad, streamed)
		var refused *openai.Error
		if !errors.As(err, &refused) || refused.StatusCode != http.StatusBadRequest || refused.Type != "BadRequestError" || !strings.Contains(refused.Message, "too large") {
			t.Errorf("an engine's refusal: %v", err)
		}
		_, err = complete(t, &c.Client, p, streamed, option.WithHeader("x-calinix-mode", "sideways"))
		refused = nil
		if !errors.As(err, &refused) || refused.StatusCode != http.StatusBadRequest || refused.Type != "invalid_request_error" || refused.Code == "" || refused.Message == "" {
			t.Errorf("the product's refusal: %v", err)
		}
	}
}
