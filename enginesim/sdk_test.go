package enginesim

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// The official client must find every answer in the shape that it knows.

func (l *live) client() openai.Client {
	return openai.NewClient(option.WithBaseURL(l.url+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
}

func chatParams() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: "m",
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("be brief"),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart("what"), openai.TextContentPart("is this?")}),
		},
		MaxCompletionTokens: openai.Int(10),
	}
}

func TestSDKChat(t *testing.T) {
	c := newLive(t, quick()).client()
	ctx := context.Background()
	whole, err := c.Chat.Completions.New(ctx, chatParams())
	if err != nil {
		t.Fatal(err)
	}
	text := whole.Choices[0].Message.Content
	if len(strings.Fields(text)) != 10 || whole.Choices[0].FinishReason != "length" || whole.Model != "m" || whole.Usage.PromptTokens != 8 || whole.Usage.CompletionTokens != 10 {
		t.Errorf("%s", whole.RawJSON())
	}
	p := chatParams()
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.Chat.Completions.NewStreaming(ctx, p)
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("chunk does not fit: %s", stream.Current().RawJSON())
		}
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	if acc.Choices[0].Message.Content != text || acc.Choices[0].FinishReason != "length" || acc.Usage.TotalTokens != 18 {
		t.Errorf("streamed %+v, in one piece %q", acc.ChatCompletion, text)
	}
	p = chatParams()
	p.N = openai.Int(3)
	many, err := c.Chat.Completions.New(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if len(many.Choices) != 3 || many.Choices[0].Message.Content != text || many.Choices[1].Message.Content == text || many.Choices[2].Index != 2 ||
		many.Usage.PromptTokens != 8 || many.Usage.CompletionTokens != 30 {
		t.Errorf("n=3: %s", many.RawJSON())
	}
}

func TestSDKTools(t *testing.T) {
	c := newLive(t, quick()).client()
	p := chatParams()
	p.MaxCompletionTokens = param.Opt[int64]{}
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "weather", Description: openai.String("the weather"),
		Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}},
	})}
	ctx := context.Background()
	free, err := c.Chat.Completions.New(ctx, p)
	if err != nil || free.Choices[0].Message.Content == "" {
		t.Fatalf("tools without tool_choice: %v", err)
	}
	check := func(name, reason, finish string, calls []openai.ChatCompletionMessageToolCallUnion) {
		t.Helper()
		if len(calls) != 1 || calls[0].Function.Name != "weather" || !strings.HasPrefix(calls[0].ID, "call_") || finish != reason {
			t.Fatalf("%s: %+v, ended by %s", name, calls, finish)
		}
		var args map[string]string
		if err := json.Unmarshal([]byte(calls[0].Function.Arguments), &args); err != nil || args["city"] == "" {
			t.Errorf("%s: arguments %s", name, calls[0].Function.Arguments)
		}
	}
	p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	whole, err := c.Chat.Completions.New(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	check("required", "tool_calls", whole.Choices[0].FinishReason, whole.Choices[0].Message.ToolCalls)

	stream := c.Chat.Completions.NewStreaming(ctx, p)
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	check("streamed", "tool_calls", acc.Choices[0].FinishReason, acc.Choices[0].Message.ToolCalls)
	if a, b := acc.Choices[0].Message.ToolCalls[0].Function.Arguments, whole.Choices[0].Message.ToolCalls[0].Function.Arguments; a != b {
		t.Errorf("streamed arguments %s, in one piece %s", a, b)
	}
	p.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "weather"})
	named, err := c.Chat.Completions.New(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	check("named", "stop", named.Choices[0].FinishReason, named.Choices[0].Message.ToolCalls)
}

func TestSDKCompletions(t *testing.T) {
	c := newLive(t, quick()).client()
	ctx := context.Background()
	whole, err := c.Completions.New(ctx, openai.CompletionNewParams{
		Model:     "m",
		Prompt:    openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"once upon a time", "in the beginning"}},
		N:         openai.Int(2),
		MaxTokens: openai.Int(6),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Choices) != 4 || whole.Usage.PromptTokens != 7 || whole.Usage.CompletionTokens != 24 || whole.Choices[3].Index != 3 {
		t.Errorf("%s", whole.RawJSON())
	}
	stream := c.Completions.NewStreaming(ctx, openai.CompletionNewParams{
		Model: "m", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("in the beginning")}, MaxTokens: openai.Int(6),
	})
	text := ""
	for stream.Next() {
		text += stream.Current().Choices[0].Text
	}
	if stream.Err() != nil || text != whole.Choices[2].Text {
		t.Errorf("streamed %q, in one piece %q; %v", text, whole.Choices[2].Text, stream.Err())
	}
	for _, p := range []openai.CompletionNewParamsPromptUnion{{OfArrayOfTokens: []int64{1, 2, 3}}, {OfArrayOfTokenArrays: [][]int64{{1, 2}, {3}}}} {
		got, err := c.Completions.New(ctx, openai.CompletionNewParams{Model: "m", Prompt: p})
		if err != nil || got.Usage.PromptTokens != 3 {
			t.Errorf("token ids: %v", err)
		}
	}
}

func TestSDKEmbeddings(t *testing.T) {
	l := newLive(t, quick())
	c := l.client()
	ctx := context.Background()
	get := func(p openai.EmbeddingNewParams) *openai.CreateEmbeddingResponse {
		t.Helper()
		p.Model = "m"
		got, err := c.Embeddings.New(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	two := get(openai.EmbeddingNewParams{Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a b c", "d e"}}})
	if len(two.Data) != 2 || len(two.Data[1].Embedding) != 64 || two.Usage.PromptTokens != 5 || two.Usage.TotalTokens != 5 || two.Data[1].Index != 1 {
		t.Errorf("%s", two.RawJSON())
	}
	one := get(openai.EmbeddingNewParams{Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("d e")}, Dimensions: openai.Int(64)})
	if one.Data[0].Embedding[5] != two.Data[1].Embedding[5] || one.Data[0].Embedding[5] == two.Data[0].Embedding[5] {
		t.Error("an embedding is not a function of its input")
	}
	_, v := l.post(t, "/v1/embeddings", `{"input":[[1,2,3]],"encoding_format":"base64","dimensions":3}`)
	if s := v["data"].([]any)[0].(map[string]any)["embedding"].(string); len(s) != 16 {
		t.Errorf("base64 embedding %q", s)
	}
	if st := l.Stats(); st.BlocksCached != 0 || st.BlocksPinned != 0 || st.GenerationTokens != 0 {
		t.Errorf("embeddings left something behind: %+v", st)
	}
}

func TestSDKResponses(t *testing.T) {
	c := newLive(t, quick()).client()
	ctx := context.Background()
	p := responses.ResponseNewParams{
		Model: "m", Instructions: openai.String("be brief"), MaxOutputTokens: openai.Int(6),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("what is this?")},
	}
	whole, err := c.Responses.New(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if len(strings.Fields(whole.OutputText())) != 6 || whole.Status != "incomplete" || whole.Usage.InputTokens != 8 || whole.Usage.OutputTokens != 6 {
		t.Errorf("%s", whole.RawJSON())
	}
	stream := c.Responses.NewStreaming(ctx, p)
	text := ""
	var last responses.ResponseStreamEventUnion
	for stream.Next() {
		last = stream.Current()
		if last.Type == "response.output_text.delta" {
			text += last.Delta
		}
	}
	if stream.Err() != nil || text != whole.OutputText() || last.Response.Usage.TotalTokens != 14 {
		t.Errorf("streamed %q, in one piece %q; %v", text, whole.OutputText(), stream.Err())
	}
}

func TestSDKErrorsAndModels(t *testing.T) {
	set := quick()
	set.Models = []string{"m", "n"}
	c := newLive(t, set).client()
	ctx := context.Background()
	models, err := c.Models.List(ctx)
	if err != nil || len(models.Data) != 2 || models.Data[1].ID != "n" || models.Data[1].OwnedBy != "vllm" {
		t.Errorf("models %+v, %v", models, err)
	}
	p := chatParams()
	p.Model = "x"
	_, err = c.Chat.Completions.New(ctx, p)
	var apiErr *openai.Error
	if !errors.As(err, &apiErr) || apiErr.StatusCode != 404 || apiErr.Type != "NotFoundError" || apiErr.Param != "model" {
		t.Errorf("unknown model: %v", err)
	}
}
