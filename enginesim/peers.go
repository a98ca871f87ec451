package enginesim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// privatePath is where engines speak to each other and tests look inside.
const privatePath = "/inference_sim/"

// Peers lets engines find each other: by id within a process, over HTTP beyond. The
// engines of a process share one; two Peers stand for two processes. Safe for
// concurrent use.
type Peers struct {
	client http.Client
	mu     sync.Mutex
	byID   map[string]*Engine  // guarded by mu
	rooms  map[string]*meeting // guarded by mu
	past   pastLeases          // of rooms that were used; guarded by mu
	stored map[uint64]bool     // blocks in the store that engines share; guarded by mu
}

// NewPeers returns an empty registry.
func NewPeers() *Peers {
	return &Peers{
		byID:   map[string]*Engine{},
		rooms:  map[string]*meeting{},
		past:   pastLeases{reason: map[string]string{}},
		stored: map[uint64]bool{},
		client: http.Client{
			// A claim is rare: no connection is kept, none can turn out stale.
			Transport: &http.Transport{DisableKeepAlives: true},
			Timeout:   5 * time.Second,
		},
	}
}

func (p *Peers) add(e *Engine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byID[e.id] = e
}

func (p *Peers) remove(e *Engine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byID, e.id)
}

func (p *Peers) find(id string) *Engine {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[id]
}

// peerCall is the body of a claim or a release between processes.
type peerCall struct {
	Params handout `json:"kv_transfer_params"`
	Prompt string  `json:"prompt_hash"`
}

// post calls the engine at the handout's address, on this machine only: the address
// comes from a request, and a simulated engine must not be a way into a network.
func (p *Peers) post(ctx context.Context, verb string, h *handout, prompt uint64) error {
	if ip := net.ParseIP(h.RemoteHost); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("engine %q is not in this process, and remote_host %q is not a loopback address", h.RemoteEngineID, h.RemoteHost)
	}
	body := appendJSON(nil, peerCall{Params: *h, Prompt: strconv.FormatUint(prompt, 16)})
	url := "http://" + net.JoinHostPort(h.RemoteHost, strconv.Itoa(h.RemotePort)) + privatePath + "kv/" + verb
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("remote_host %q: %w", h.RemoteHost, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("engine %q is not in this process, and asking at its address failed: %w", h.RemoteEngineID, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return fmt.Errorf("reading the answer of engine %q: %w", h.RemoteEngineID, err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(string(bytes.TrimSpace(text)))
	}
	return nil
}

// servePeer answers a call of another process.
func (e *Engine) servePeer(w http.ResponseWriter, r *http.Request, verb string) {
	var c peerCall
	if err := json.NewDecoder(io.LimitReader(r.Body, 64<<20)).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	prompt, err := strconv.ParseUint(c.Prompt, 16, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if verb == "release" {
		e.releaseClaim(c.Params.RemoteRequestID)
		return
	}
	if err := e.grantClaim(&c.Params, prompt); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}
