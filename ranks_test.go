package calinix_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/fakepod"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestRanks: pods that are ranks behind one port. Each leg names the rank of its own
// pod, whatever the client names; with sglang also in the body, where the decode leg
// says which prefill rank has its prompt; mooncake's engine is that of the rank.
func TestRanks(t *testing.T) {
	for connector, c := range map[string]struct {
		own, of string // members of both legs, and of the decode leg
		keys    string // of the prefill pod
	}{
		"nixl":     {},
		"plain":    {},
		"mooncake": {keys: "bootstrap_port PORT\n"},
		"sglang":   {own: "routed_dp_rank", of: "disagg_prefill_dp_rank", keys: "bootstrap_port PORT\n"},
	} {
		t.Run(connector, func(t *testing.T) {
			p, d := pods(t, "prefill")[0], pods(t, "decode")[0]
			p.SetPath("/query", fakepod.Reply{Body: []byte(`{"0":{"engine_id":"of-rank-0"},"3":{"engine_id":"of-rank-3"}}`)}) // mooncake asks it
			s := serve(t, fmt.Sprintf("dispatch {\nconnector %s\nprefill {\npod p3 %s {\ndp_rank 3\n%s}\n}\ndecode {\npod d1 %s {\ndp_rank 1\n}\n}\n}\n",
				connector, p.URL, strings.ReplaceAll(c.keys, "PORT", p.Addr[strings.LastIndexByte(p.Addr, ':')+1:]), d.URL), testcaddy.Plain())
			if a := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi", `"max_tokens":3`), "X-Data-Parallel-Rank", "7"); a.Status != 200 {
				t.Fatal(a)
			}
			// It may be on its way when the client has the answer.
			p.Wait(t, "the prefill leg", func(st fakepod.State) bool {
				legs := generating(st.Requests)
				return len(legs) == 1 && legs[0].BodyRead
			})
			legs := map[string]fakepod.Request{"3": generating(p.Requests())[0], "1": d.Last(t)}
			for rank, q := range legs {
				if got := q.Header.Values("X-Data-Parallel-Rank"); len(got) != 1 || got[0] != rank {
					t.Errorf("pod %s, rank %s, gets rank %q", q.Pod, rank, got)
				}
				if c.own == "" {
					continue
				}
				if got, _ := q.Member(c.own); string(got) != rank {
					t.Errorf("pod %s, rank %s, gets %s", q.Pod, rank, q.Body)
				}
				if got, there := q.Member(c.of); there != (rank == "1") || there && string(got) != "3" {
					t.Errorf("pod %s, rank %s, gets %s", q.Pod, rank, q.Body)
				}
			}
			if connector == "mooncake" {
				var params struct {
					Engine string `json:"remote_engine_id"`
				}
				decode := legs["1"]
				kv, _ := decode.Member("kv_transfer_params")
				if err := json.Unmarshal(kv, &params); err != nil || params.Engine != "of-rank-3" {
					t.Errorf("the decode leg names engine %q (%v): %s", params.Engine, err, decode.Body)
				}
			}
		})
	}
}

// generating are the requests that are legs.
func generating(all []fakepod.Request) (legs []fakepod.Request) {
	for _, q := range all {
		if q.Path == chatPath {
			legs = append(legs, q)
		}
	}
	return legs
}

// TestRankHasItsPort: a rank for which no kv_address is given has the side channel's
// port of its number.
func TestRankHasItsPort(t *testing.T) {
	ps := pods(t, "p", "d")
	s := serve(t, fmt.Sprintf("dispatch {\nconnector nixl_push\nprefill {\npod p %s {\nengine_id e\ndp_rank 3\n}\n}\ndecode {\npod d %s\n}\n}\n", ps[0].URL, ps[1].URL), testcaddy.Plain())
	a := s.Client(t, testcaddy.H1).Post(t, chatPath, chat("hi", `"max_tokens":3`))
	q := ps[1].Last(t)
	if kv, _ := q.Member("kv_transfer_params"); a.Status != 200 || !strings.Contains(string(kv), `"remote_host":"127.0.0.1","remote_port":5603,`) {
		t.Errorf("%v: the decode leg has %s", a, kv)
	}
}
