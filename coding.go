package calinix

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// decode undoes the Content-Encoding, so that a compressed prompt is routed
// like the plain one. What cannot be decoded is no error yet, coded says why: in
// single mode the pod gets the client's bytes and answers for itself. A bomb is
// one: it would cost memory here.
func (b *body) decode(ctx context.Context, h http.Header, lim bodyLimits) (plain []byte, coded, err error) {
	codings := contentCodings(h)
	if len(codings) == 0 || len(b.raw) == 0 {
		return b.raw, nil, nil
	}
	select {
	case decoding <- struct{}{}:
		defer func() { <-decoding }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	src, err := decoder(codings, b.raw, lim.maxBytes)
	if err != nil {
		return nil, err, nil
	}
	defer src.Close()
	plain, err = b.readAll(src, lim)
	switch {
	case errors.Is(err, errBodyTooLarge), errors.Is(err, errBodyMemory):
		return nil, nil, err
	case err != nil:
		b.shrink(int64(len(b.raw)))
		return nil, err, nil
	}
	return plain, nil, nil
}

// decoding holds a place for each body that is being decompressed. More at once
// than there are processors would only take more memory: decoders have state of
// their own, which bodyMemoryBytes does not count.
var decoding = make(chan struct{}, runtime.GOMAXPROCS(0))

// Bounds of what a client can make a decoder do.
const (
	maxCodings = 3       // applied one over the other
	maxWindow  = 8 << 20 // of zstd; RFC 9659 allows no more in HTTP
)

// contentCodings lists the codings of a body in the order in which they were
// applied, without identity, from all lines of the header.
func contentCodings(h http.Header) []string {
	var codings []string
	for _, line := range h["Content-Encoding"] {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.ToLower(strings.TrimSpace(name))
			if name != "" && name != "identity" {
				codings = append(codings, name)
			}
		}
	}
	return codings
}

// decoder returns a reader that undoes the codings of raw. What comes out of any
// of them is bounded: more than limit bytes are errBodyTooLarge.
func decoder(codings []string, raw []byte, limit int64) (io.ReadCloser, error) {
	if len(codings) > maxCodings {
		return nil, fmt.Errorf("%d content encodings, want at most %d", len(codings), maxCodings)
	}
	d := &decoded{Reader: bytes.NewReader(raw)}
	for _, name := range slices.Backward(codings) {
		src, err := undo(name, d.Reader)
		if err != nil {
			_ = d.Close()
			return nil, err
		}
		d.Reader = &bounded{src: src, left: limit}
		d.stages = append(d.stages, src)
	}
	return d, nil
}

// undo returns a reader that undoes one HTTP content coding.
func undo(coding string, src io.Reader) (io.ReadCloser, error) {
	switch coding {
	case "gzip", "x-gzip":
		return gzip.NewReader(src)
	case "deflate":
		// HTTP's deflate is zlib; some senders leave its header out.
		buffered := bufio.NewReader(src)
		if head, err := buffered.Peek(2); err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
			return zlib.NewReader(buffered)
		}
		return flate.NewReader(buffered), nil
	case "zstd":
		return newZstd(src)
	}
	return nil, unknownCoding(coding)
}

// unknownCoding is the error about a content coding of this name.
type unknownCoding string

// Error implements error.
func (c unknownCoding) Error() string {
	return fmt.Sprintf("content encoding %q is not known, want one of %s", cut(string(c), 64), knownCodings)
}

// knownCodings are those that undo knows.
const knownCodings = "gzip, zstd, deflate"

// decoded is a body whose codings are being undone.
type decoded struct {
	io.Reader
	stages []io.Closer
}

// Close implements [io.Closer].
func (d *decoded) Close() error {
	for _, s := range d.stages {
		_ = s.Close()
	}
	return nil
}

// bounded ends in errBodyTooLarge when src gives more than left bytes.
type bounded struct {
	src  io.Reader
	left int64
}

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.src.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, errBodyTooLarge
	}
	return n, err
}

// zstds are decoders that wait for a next body: with windows of up to maxWindow,
// they are too large to be made anew for every small one.
var zstds sync.Pool

// pooledZstd is a decoder that goes back to the pool when it is closed.
type pooledZstd struct{ *zstd.Decoder }

func newZstd(src io.Reader) (io.ReadCloser, error) {
	z, ok := zstds.Get().(*zstd.Decoder)
	if !ok {
		var err error
		if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxWindow)); err != nil {
			return nil, err
		}
	}
	if err := z.Reset(src); err != nil {
		return nil, err
	}
	return pooledZstd{z}, nil
}

// Close implements [io.Closer].
func (p pooledZstd) Close() error {
	if err := p.Reset(nil); err != nil {
		return err
	}
	zstds.Put(p.Decoder)
	return nil
}
