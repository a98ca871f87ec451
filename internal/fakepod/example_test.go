package fakepod_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

// A pod that breaks off after three chunks, and what it knows afterwards. In a
// test, New takes the place of Start and Close.
func Example() {
	a, err := fakepod.Start(fakepod.Options{Name: "a"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	a.Set(fakepod.Reply{Cut: fakepod.Reset, At: fakepod.AfterChunks(3)})

	body := `{"model":"m","messages":[{"role":"user","content":"count to ten"}],"stream":true}`
	resp, err := http.Post(a.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	fmt.Println("client:", resp.StatusCode, bytes.Count(got, []byte("\n\n")), "chunks, then an error:", err != nil)

	for _, q := range a.Requests() {
		fmt.Println("pod:", q.Method, q.Path, len(q.Body) == len(body), len(q.Sent), "chunks", q.End)
	}
	// Output:
	// client: 200 3 chunks, then an error: true
	// pod: POST /v1/chat/completions true 3 chunks cut by pod
}
