package fakepod

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// wire1 answers on HTTP/1.1, every write going straight to the connection.
type wire1 struct {
	c       *conn
	req     *http.Request
	chunked bool
	noBody  bool
}

func (w *wire1) head(status int, h http.Header, f Framing, length int) error {
	w.noBody = w.req.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
	if f == Chunked && !w.req.ProtoAtLeast(1, 1) {
		f = UntilClose
	}
	switch {
	case status == http.StatusNoContent:
	case f == Chunked:
		w.chunked = true
		h.Set("Transfer-Encoding", "chunked")
	case f == UntilClose:
		h.Set("Connection", "close")
	case h.Get("Content-Length") == "":
		h.Set("Content-Length", strconv.Itoa(length))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	names := make([]string, 0, len(h))
	for k := range h {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		for _, v := range h[k] {
			b.WriteString(k + ": " + v + "\r\n")
		}
	}
	b.WriteString("\r\n")
	return w.write(b.String())
}

func (w *wire1) piece(b []byte, n int) error {
	if w.noBody || len(b) == 0 {
		return nil
	}
	if !w.chunked {
		return w.write(string(b[:n]))
	}
	s := fmt.Sprintf("%x\r\n%s", len(b), b[:n])
	if n == len(b) {
		s += "\r\n"
	}
	return w.write(s)
}

func (w *wire1) end() error {
	if w.noBody || !w.chunked {
		return nil
	}
	return w.write("0\r\n\r\n")
}

func (w *wire1) raw(b []byte) error { return w.write(string(b)) }

func (w *wire1) proceed() error {
	if strings.EqualFold(w.req.Header.Get("Expect"), "100-continue") {
		return w.write("HTTP/1.1 100 Continue\r\n\r\n")
	}
	return nil
}

func (w *wire1) write(s string) error {
	_, err := io.WriteString(w.c.nc, s)
	return err
}

func (w *wire1) cut(how Cut) {
	c := w.c
	if how != Reset {
		return // the connection is closed in good order by its own loop
	}
	awaitSent(c.tcp)
	c.pod.mu.Lock()
	c.reset(errPodGone)
	c.pod.mu.Unlock()
}

// isGone reports whether an error of reading or writing says that the peer left.
func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED)
}
