package calinix

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/calinix/caddy-calinix/config"
)

// provisionProxy prepares Caddy's proxy: one for what clients see, and one for
// prefill legs, which share transport and header rules.
func (h *Handler) provisionProxy(ctx caddy.Context) error {
	if h.Proxy == nil {
		h.Proxy = new(reverseproxy.Handler)
	}
	p := h.Proxy
	switch {
	case len(p.Upstreams) > 0 || p.DynamicUpstreamsRaw != nil:
		return errors.New("reverse_proxy.upstreams: pods are listed under single and dispatch instead")
	case p.LoadBalancing != nil:
		return errors.New("reverse_proxy.load_balancing: use strategy, retries and retry_status instead")
	case p.HealthChecks != nil:
		return errors.New("reverse_proxy.health_checks: use health instead")
	case p.RequestBuffers != 0:
		return errors.New("reverse_proxy.request_buffers: bodies are buffered anyway, see max_body_bytes")
	case p.Rewrite != nil && p.Rewrite.Method != "":
		return errors.New("reverse_proxy.rewrite.method: pods get the client's method")
	}
	var err error
	h.transport, err = newPodTransport(ctx, p.TransportRaw, h.hasTLSPods())
	if err != nil {
		return err
	}
	if p.Headers != nil && p.Headers.Request != nil {
		for name := range p.Headers.Request.Set { // JSON may have any case
			h.keepHost = h.keepHost || strings.EqualFold(name, "Host")
		}
	}
	p.TransportRaw = nil // it has been loaded; Caddy's own loading would do so again
	h.legs = &reverseproxy.Handler{Headers: requestRules(p.Headers), Rewrite: p.Rewrite, TrustedProxies: p.TrustedProxies, VerboseLogs: p.VerboseLogs}
	for _, proxy := range []*reverseproxy.Handler{h.Proxy, h.legs} {
		proxy.Transport = h.transport
		proxy.LoadBalancing = &reverseproxy.LoadBalancing{SelectionPolicy: pickedPod{}}
		if err := proxy.Provision(ctx); err != nil {
			return fmt.Errorf("provisioning reverse_proxy: %w", err)
		}
	}
	h.provisioned = true
	return nil
}

// requestRules are the header rules of requests alone: those of answers are
// applied when a prefill leg's answer reaches the client, see capture.replay.
func requestRules(rules *headers.Handler) *headers.Handler {
	if rules == nil {
		return nil
	}
	return &headers.Handler{Request: rules.Request}
}

// answerRules are the user's header rules for answers, nil without any.
func (h *Handler) answerRules() *headers.RespHeaderOps {
	if h.Proxy.Headers == nil {
		return nil
	}
	return h.Proxy.Headers.Response
}

// hasTLSPods tells whether a pod may speak TLS. What sources will find is not
// known yet.
func (h *Handler) hasTLSPods() bool {
	if len(h.effective.Sources()) > 0 {
		return true
	}
	for _, m := range h.effective.Members() {
		if a, err := config.ParseURL(m.URL); err == nil && a.Scheme == "https" {
			return true
		}
	}
	return false
}
