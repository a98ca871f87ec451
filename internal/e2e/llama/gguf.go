package llama

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
)

// Model is a language model of the llama family whose weights are drawn. It has
// no idea of anything, but computes as a real one does. Greedy, it answers with
// lower-case letters and never ends by itself.
type Model struct {
	Width, Layers, Hidden int
	Heads, KVHeads        int // of attention; Heads divides Width
	Context               int // tokens
	Seed                  uint64
}

// Small is a model of 3 million weights, 6 MB, which one core runs at some
// thousand tokens of prompt a second.
func Small() Model {
	return Model{Width: 256, Layers: 4, Hidden: 768, Heads: 8, KVHeads: 4, Context: 32768, Seed: 1}
}

// The file format, GGUF version 3 (ggml's docs/gguf.md): a header, metadata, a
// list of tensors, and their data, each aligned.
const (
	magic     = "GGUF"
	version   = 3
	alignment = 32

	// Types of metadata.
	typeUint32  = 4
	typeInt32   = 5
	typeFloat32 = 6
	typeBool    = 7
	typeString  = 8
	typeArray   = 9

	// Types of tensors. In Q8_0, 32 weights share a factor: 2 bytes for it, and
	// one for each of them.
	tensorF32    = 0
	tensorQ8     = 8
	blockWeights = 32
	blockBytes   = 2 + blockWeights

	mostlyQ8 = 7 // general.file_type
)

// The vocabulary: a token for each byte, the three marks of ChatML, and one merge,
// as readers of the format want to see one.
const (
	endOfText  = 256
	turnBegins = "<|im_start|>"
	turnEnds   = "<|im_end|>"
	endOfTurn  = 258

	normalToken  = 1
	controlToken = 3
)

// template writes a chat as ChatML.
const template = `{%- for message in messages -%}` +
	`{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}` +
	`{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}`

// vocabulary returns the tokens and their types. Byte-level vocabularies spell a
// byte that is not printable as a rune beyond 255.
func vocabulary() (tokens []string, types []int32) {
	moved := rune(256)
	for b := range rune(256) {
		switch {
		case b >= '!' && b <= '~', b >= '¡' && b <= '¬', b >= '®':
			tokens = append(tokens, string(b))
		default:
			tokens = append(tokens, string(moved))
			moved++
		}
		types = append(types, normalToken)
	}
	tokens = append(tokens, "<|endoftext|>", turnBegins, turnEnds, "th")
	return tokens, append(types, controlToken, controlToken, controlToken, normalToken)
}

// tensor is one matrix, its rows as long as dims[0]; or a vector of ones, if
// there is no spread.
type tensor struct {
	name   string
	dims   []int
	spread float64 // standard deviation of the weights
}

func (t *tensor) weights() int {
	n := 1
	for _, d := range t.dims {
		n *= d
	}
	return n
}

func (t *tensor) kind() uint32 {
	if t.spread == 0 {
		return tensorF32
	}
	return tensorQ8
}

func (t *tensor) size() int {
	if t.spread == 0 {
		return 4 * t.weights()
	}
	return t.weights() / blockWeights * blockBytes
}

// head is the matrix that turns the last state into the next token.
const head = "output.weight"

func (m *Model) tensors(vocabulary int) []tensor {
	wide, keys := m.Width, m.Width/m.Heads*m.KVHeads
	all := []tensor{
		{"token_embd.weight", []int{wide, vocabulary}, 0.02},
		{"output_norm.weight", []int{wide}, 0},
		{head, []int{wide, vocabulary}, 0.3},
	}
	for i := range m.Layers {
		in := func(part string, spread float64, dims ...int) {
			all = append(all, tensor{fmt.Sprintf("blk.%d.%s.weight", i, part), dims, spread})
		}
		in("attn_norm", 0, wide)
		in("attn_q", 0.04, wide, wide)
		in("attn_k", 0.04, wide, keys)
		in("attn_v", 0.04, wide, keys)
		in("attn_output", 0.04, wide, wide)
		in("ffn_norm", 0, wide)
		in("ffn_gate", 0.04, wide, m.Hidden)
		in("ffn_up", 0.04, wide, m.Hidden)
		in("ffn_down", 0.04, m.Hidden, wide)
	}
	return all
}

// Write writes the model's file. The same model is the same file.
func (m *Model) Write(w io.Writer) error {
	tokens, types := vocabulary()
	tensors := m.tensors(len(tokens))
	var b file
	b.WriteString(magic)
	b.uint32(version)
	b.uint64(len(tensors))
	meta, pairs := m.metadata(tokens, types)
	b.uint64(pairs)
	b.Write(meta)
	offset := 0
	for i := range tensors {
		t := &tensors[i]
		b.text(t.name)
		b.uint32(uint32(len(t.dims)))
		for _, d := range t.dims {
			b.uint64(d)
		}
		b.uint32(t.kind())
		b.uint64(offset)
		offset += aligned(t.size())
	}
	b.align()
	if _, err := w.Write(b.Bytes()); err != nil {
		return err
	}
	draw := rand.New(rand.NewPCG(m.Seed, 0))
	for i := range tensors {
		b.Reset()
		b.data(&tensors[i], draw, tokens)
		b.align()
		if _, err := w.Write(b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// metadata returns the pairs of keys and values, and how many they are.
func (m *Model) metadata(tokens []string, types []int32) (text []byte, pairs int) {
	var b file
	key := func(name string, kind uint32) {
		b.text(name)
		b.uint32(kind)
		pairs++
	}
	word := func(name, value string) { key(name, typeString); b.text(value) }
	number := func(name string, n int) { key(name, typeUint32); b.uint32(uint32(n)) }
	float := func(name string, x float32) { key(name, typeFloat32); b.uint32(math.Float32bits(x)) }
	list := func(name string, kind uint32, n int) { key(name, typeArray); b.uint32(kind); b.uint64(n) }

	word("general.architecture", "llama")
	word("general.name", "calinix-random")
	number("general.alignment", alignment)
	number("general.file_type", mostlyQ8)
	number("llama.block_count", m.Layers)
	number("llama.context_length", m.Context)
	number("llama.embedding_length", m.Width)
	number("llama.feed_forward_length", m.Hidden)
	number("llama.attention.head_count", m.Heads)
	number("llama.attention.head_count_kv", m.KVHeads)
	float("llama.attention.layer_norm_rms_epsilon", 1e-5)
	number("llama.rope.dimension_count", m.Width/m.Heads)
	float("llama.rope.freq_base", 10000)
	number("llama.vocab_size", len(tokens))

	word("tokenizer.ggml.model", "gpt2")
	word("tokenizer.ggml.pre", "gpt-2")
	list("tokenizer.ggml.tokens", typeString, len(tokens))
	for _, t := range tokens {
		b.text(t)
	}
	list("tokenizer.ggml.token_type", typeInt32, len(types))
	for _, t := range types {
		b.uint32(uint32(t))
	}
	list("tokenizer.ggml.merges", typeString, 1)
	b.text("t h")
	number("tokenizer.ggml.bos_token_id", endOfText)
	number("tokenizer.ggml.eos_token_id", endOfTurn)
	key("tokenizer.ggml.add_bos_token", typeBool)
	b.WriteByte(0)
	word("tokenizer.chat_template", template)
	return b.Bytes(), pairs
}

// file is a part of a file that is being made.
type file struct{ bytes.Buffer }

func (b *file) uint32(n uint32) { b.Write(binary.LittleEndian.AppendUint32(nil, n)) }
func (b *file) uint64(n int)    { b.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }

func (b *file) text(s string) {
	b.uint64(len(s))
	b.WriteString(s)
}

func (b *file) align() { b.Write(make([]byte, aligned(b.Len())-b.Len())) }

func aligned(n int) int { return (n + alignment - 1) / alignment * alignment }

// data writes a tensor's weights. Bytes drawn evenly have a standard deviation of
// 73.9, which the factor makes the tensor's. The head's rows for all tokens but
// the lower-case letters are 0: the highest of so many other numbers is above that.
func (b *file) data(t *tensor, draw *rand.Rand, tokens []string) {
	if t.spread == 0 {
		for range t.weights() {
			b.uint32(math.Float32bits(1))
		}
		return
	}
	factor := binary.LittleEndian.AppendUint16(nil, half(t.spread/73.9))
	each := t.dims[0] / blockWeights
	var block [blockBytes]byte
	for i := range t.weights() / blockWeights {
		clear(block[:])
		if t.name != head || letter(tokens[i/each]) {
			copy(block[:], factor)
			for k := 2; k < len(block); k += 8 {
				binary.LittleEndian.PutUint64(block[k:], draw.Uint64())
			}
		}
		b.Write(block[:])
	}
}

func letter(token string) bool { return len(token) == 1 && token[0] >= 'a' && token[0] <= 'z' }

// half returns x as a float of 16 bits, cut off. x must be between 2^-14 and 2^15.
func half(x float64) uint16 {
	fraction, exponent := math.Frexp(x) // 0.5 to 1, times 2^exponent
	return uint16(exponent-1+15)<<10 | uint16((2*fraction-1)*1024)
}
