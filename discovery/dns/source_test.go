package dns

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/calinix/caddy-calinix/config"
	"github.com/calinix/caddy-calinix/internal/fakepod/freeport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a real name server on loopback, over UDP and TCP.
type server struct {
	address string

	mu      sync.Mutex
	records map[string][]dns.RR // by name and type
	asked   map[string]int      // how often, by name and type
	rcode   int                 // of every answer, if not 0
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{records: map[string][]dns.RR{}, asked: map[string]int{}}
	s.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(freeport.Get(t)))
	udp, err := net.ListenPacket("udp", s.address)
	require.NoError(t, err)
	tcp, err := net.Listen("tcp", s.address)
	require.NoError(t, err)
	for _, srv := range []*dns.Server{{PacketConn: udp, Handler: s}, {Listener: tcp, Handler: s}} {
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		ended := make(chan error, 1)
		go func() { ended <- srv.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			assert.NoError(t, srv.Shutdown())
			assert.NoError(t, <-ended)
		})
	}
	return s
}

// set replaces the records of one name and type by these, in the zone's format.
func (s *server) set(t *testing.T, name string, qtype uint16, records ...string) {
	t.Helper()
	var rrs []dns.RR
	for _, text := range records {
		rr, err := dns.NewRR(text)
		require.NoError(t, err)
		rrs = append(rrs, rr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[name+" "+dns.TypeToString[qtype]] = rrs
}

func (s *server) fail(rcode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rcode = rcode
}

// times returns how often a name's addresses were asked for.
func (s *server) times(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name+" A"]
}

// ServeDNS implements [dns.Handler].
func (s *server) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := new(dns.Msg)
	m.SetReply(q)
	m.Rcode = s.rcode
	question := q.Question[0]
	name := question.Name + " " + dns.TypeToString[question.Qtype]
	s.asked[name]++
	if rrs, ok := s.records[name]; ok && m.Rcode == 0 {
		m.Answer = rrs
	} else if m.Rcode == 0 {
		m.Rcode = dns.RcodeNameError
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp && m.Len() > dns.DefaultMsgSize {
		m.Truncate(dns.DefaultMsgSize)
	}
	_ = w.WriteMsg(m)
}

// reports is a sink that hands on lists of pods that differ from the one before.
type reports struct {
	ctx  context.Context
	last string
	out  chan string
}

func (r *reports) Found(pods []config.Pod) {
	var urls []string
	for _, p := range pods {
		urls = append(urls, p.ID+"="+p.URL)
	}
	r.tell(strings.Join(urls, " "))
}

func (r *reports) Failing(err error) {
	if err != nil {
		r.tell("failing: " + err.Error())
	}
}

func (r *reports) tell(now string) {
	if now != r.last {
		r.last = now
		select {
		case r.out <- now:
		case <-r.ctx.Done():
		}
	}
}

// watch runs a source and returns its reports.
func watch(t *testing.T, s *Source) <-chan string {
	t.Helper()
	require.NoError(t, s.Provision(caddy.Context{}))
	ctx, cancel := context.WithCancel(t.Context())
	r, ended := &reports{ctx: ctx, last: "none yet", out: make(chan string)}, make(chan struct{})
	go func() {
		defer close(ended)
		s.Watch(ctx, r)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return r.out
}

func next(t *testing.T, reports <-chan string) string {
	t.Helper()
	select {
	case r := <-reports:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("no report")
		return ""
	}
}

// quick are settings that ask again at once.
func quick(srv *server, s Source) *Source {
	s.Resolvers = []string{srv.address}
	s.MinTTL, s.MaxTTL = caddy.Duration(5*time.Millisecond), caddy.Duration(5*time.Millisecond)
	return &s
}

func TestAddresses(t *testing.T) {
	srv := serve(t)
	srv.set(t, "engines.test.", dns.TypeA, "engines.test. 0 A 10.0.0.2", "engines.test. 0 A 10.0.0.1")
	srv.set(t, "engines.test.", dns.TypeAAAA, "engines.test. 0 AAAA fd00::1")
	r := watch(t, quick(srv, Source{Name: "engines.test.", Port: 8000, Scheme: "https"}))
	assert.Equal(t, "10.0.0.1:8000=https://10.0.0.1:8000 10.0.0.2:8000=https://10.0.0.2:8000 [fd00::1]:8000=https://[fd00::1]:8000", next(t, r))
	srv.set(t, "engines.test.", dns.TypeA, "engines.test. 0 A 10.0.0.3")
	assert.Equal(t, "10.0.0.3:8000=https://10.0.0.3:8000 [fd00::1]:8000=https://[fd00::1]:8000", next(t, r))
	// no such records, and no such name
	srv.set(t, "engines.test.", dns.TypeA)
	srv.set(t, "engines.test.", dns.TypeAAAA)
	assert.Empty(t, next(t, r))
}

func TestServices(t *testing.T) {
	srv := serve(t)
	srv.set(t, "_http._tcp.engines.test.", dns.TypeSRV,
		"_http._tcp.engines.test. 0 SRV 0 10 8001 b.engines.test.", "_http._tcp.engines.test. 0 SRV 0 10 8000 a.engines.test.")
	r := watch(t, quick(srv, Source{Name: "_http._tcp.engines.test.", Type: "srv"}))
	assert.Equal(t, "a.engines.test:8000=http://a.engines.test:8000 b.engines.test:8001=http://b.engines.test:8001", next(t, r))
	srv.set(t, "_http._tcp.engines.test.", dns.TypeSRV, "_http._tcp.engines.test. 0 SRV 0 0 0 .")
	assert.Empty(t, next(t, r), "a target of . says that there is no such service")
}

// Aliases that stand in the answer before the addresses are no pods.
func TestAlias(t *testing.T) {
	srv := serve(t)
	srv.set(t, "alias.test.", dns.TypeA, "alias.test. 0 CNAME engines.test.", "engines.test. 0 A 10.0.0.1")
	r := watch(t, quick(srv, Source{Name: "alias.test.", Port: 1, Type: "a"}))
	assert.Equal(t, "10.0.0.1:1=http://10.0.0.1:1", next(t, r))
}

// 200 addresses do not fit into a datagram: the rest is asked for over TCP.
func TestTruncated(t *testing.T) {
	srv := serve(t)
	var records []string
	for i := range 200 {
		records = append(records, "many.test. 0 A 10.0.0."+strconv.Itoa(i))
	}
	srv.set(t, "many.test.", dns.TypeA, records...)
	r := watch(t, quick(srv, Source{Name: "many.test.", Port: 1, Type: "a"}))
	assert.Len(t, strings.Fields(next(t, r)), 200)
}

// A server that fails says nothing of the pods.
func TestFailure(t *testing.T) {
	srv := serve(t)
	srv.set(t, "engines.test.", dns.TypeA, "engines.test. 0 A 10.0.0.1")
	s := quick(srv, Source{Name: "engines.test.", Port: 1, Type: "a"})
	r := watch(t, s)
	assert.Equal(t, "10.0.0.1:1=http://10.0.0.1:1", next(t, r))
	srv.fail(dns.RcodeServerFailure)
	assert.Contains(t, next(t, r), "failing: name server "+srv.address+": SERVFAIL for engines.test.")
	srv.set(t, "engines.test.", dns.TypeA, "engines.test. 0 A 10.0.0.2")
	srv.fail(dns.RcodeSuccess)
	assert.Equal(t, "10.0.0.2:1=http://10.0.0.2:1", next(t, r))
}

// The second name server is asked when the first does not answer.
func TestSecondServer(t *testing.T) {
	srv := serve(t)
	srv.set(t, "engines.test.", dns.TypeA, "engines.test. 0 A 10.0.0.1")
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	s := quick(srv, Source{Name: "engines.test.", Port: 1, Type: "a", Timeout: caddy.Duration(50 * time.Millisecond)})
	s.Resolvers = []string{silent.LocalAddr().String(), srv.address}
	assert.Equal(t, "10.0.0.1:1=http://10.0.0.1:1", next(t, watch(t, s)))
}

// Answers hold for as long as their shortest record says, within the bounds.
func TestTTL(t *testing.T) {
	srv := serve(t)
	srv.set(t, "engines.test.", dns.TypeA, "engines.test. 300 A 10.0.0.1", "engines.test. 7 A 10.0.0.2")
	s := &Source{Name: "engines.test.", Port: 1, Type: "a", Resolvers: []string{srv.address}}
	require.NoError(t, s.Provision(caddy.Context{}))
	_, ttl, err := s.ask(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 7*time.Second, ttl)
	srv.set(t, "engines.test.", dns.TypeA, "engines.test. 300 A 10.0.0.1")
	_, ttl, err = s.ask(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 30*time.Second, ttl, "not longer than max_ttl")
}

// As long as an answer holds nobody asks again; one that has expired is asked for anew.
func TestTTLIsKept(t *testing.T) {
	srv := serve(t)
	srv.set(t, "lasting.test.", dns.TypeA, "lasting.test. 3600 A 10.0.0.1")
	srv.set(t, "expired.test.", dns.TypeA, "expired.test. 0 A 10.0.0.1")
	for _, name := range []string{"lasting.test.", "expired.test."} {
		next(t, watch(t, &Source{
			Name: name, Port: 1, Type: "a", Resolvers: []string{srv.address},
			MinTTL: caddy.Duration(time.Millisecond), MaxTTL: caddy.Duration(time.Hour),
		}))
	}
	require.Eventually(t, func() bool { return srv.times("expired.test.") >= 20 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, 1, srv.times("lasting.test."))
}

func TestRefusedSettings(t *testing.T) {
	for want, s := range map[string]Source{
		"want a name to look up":         {Port: 1},
		"want the port of the pods":      {Name: "x"},
		"SRV records bring their own":    {Name: "x", Type: "srv", Port: 1},
		"want address, a, aaaa or srv":   {Name: "x", Type: "mx", Port: 1},
		"want http or https":             {Name: "x", Port: 1, Scheme: "ftp"},
		"min_ttl 1m0s is longer than":    {Name: "x", Port: 1, MinTTL: caddy.Duration(time.Minute)},
		"timeout: want no negative time": {Name: "x", Port: 1, Timeout: -1},
	} {
		assert.ErrorContains(t, s.Provision(caddy.Context{}), want)
	}
}

func TestCaddyfile(t *testing.T) {
	var s Source
	require.NoError(t, s.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`dns engines.test 8000 {
		type a
		scheme https
		resolvers 10.0.0.53 [::1]:5353
		min_ttl 2s
		max_ttl 1m
		timeout 1s
	}`)))
	assert.Equal(t, Source{
		Name: "engines.test", Port: 8000, Type: "a", Scheme: "https", Resolvers: []string{"10.0.0.53", "[::1]:5353"},
		MinTTL: caddy.Duration(2 * time.Second), MaxTTL: caddy.Duration(time.Minute), Timeout: caddy.Duration(time.Second),
	}, s)
	for _, bad := range []string{"dns", "dns a b", "dns a 1 2", "dns a 1 {\n colour red\n}", "dns a 1 {\n timeout soon\n}", "dns a 1 {\n resolvers\n}"} {
		assert.Error(t, new(Source).UnmarshalCaddyfile(caddyfile.NewTestDispenser(bad)), bad)
	}
}
