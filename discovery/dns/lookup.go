package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/miekg/dns"
)

// lookup asks name servers for the records of a name. The standard library's
// resolver does not tell for how long an answer holds.
type lookup struct {
	names   []string // to be tried in this order, fully qualified
	servers []string // host:port
	udp     dns.Client
	tcp     dns.Client
}

// answer is what a name has of one type of record.
type answer struct {
	records []dns.RR
	ttl     time.Duration // for how long that holds
}

// resolvConf is where the system's name servers are listed.
const resolvConf = "/etc/resolv.conf"

func newLookup(name string, resolvers []string, timeout time.Duration) (lookup, error) {
	l := lookup{
		names:   []string{dns.Fqdn(name)},
		servers: make([]string, len(resolvers)),
		udp:     dns.Client{Timeout: timeout, UDPSize: dns.DefaultMsgSize},
		tcp:     dns.Client{Timeout: timeout, Net: "tcp"},
	}
	for i, r := range resolvers {
		l.servers[i] = r
		if _, _, err := net.SplitHostPort(r); err != nil {
			l.servers[i] = net.JoinHostPort(r, "53")
		}
	}
	system, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		if len(l.servers) > 0 {
			return l, nil
		}
		return lookup{}, fmt.Errorf("dns: reading the system's name servers: %w (give resolvers)", err)
	}
	l.names = system.NameList(name)
	if len(l.servers) == 0 {
		for _, s := range system.Servers {
			l.servers = append(l.servers, net.JoinHostPort(s, system.Port))
		}
	}
	if len(l.servers) == 0 {
		return lookup{}, fmt.Errorf("dns: %s lists no name servers (give resolvers)", resolvConf)
	}
	return l, nil
}

// find returns the records of the first of the names that has some. No records
// means that each name was said to have none.
func (l *lookup) find(ctx context.Context, qtype uint16) (answer, error) {
	none := answer{ttl: time.Duration(1<<63 - 1)}
	var errs []error
	for _, name := range l.names {
		a, err := l.one(ctx, name, qtype)
		switch {
		case err != nil:
			errs = append(errs, err)
		case len(a.records) > 0:
			return a, nil
		default:
			none.ttl = min(none.ttl, a.ttl)
		}
	}
	return none, errors.Join(errs...)
}

// one asks one server after another for one name.
func (l *lookup) one(ctx context.Context, name string, qtype uint16) (answer, error) {
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	q.SetEdns0(dns.DefaultMsgSize, false)
	var errs []error
	for _, server := range l.servers {
		reply, _, err := l.udp.ExchangeContext(ctx, q, server)
		if err == nil && reply.Truncated {
			reply, _, err = l.tcp.ExchangeContext(ctx, q, server)
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("name server %s: %w", server, err))
		case reply.Rcode == dns.RcodeSuccess, reply.Rcode == dns.RcodeNameError:
			return read(reply, qtype), nil
		default:
			errs = append(errs, fmt.Errorf("name server %s: %s for %s", server, dns.RcodeToString[reply.Rcode], name))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return answer{}, errors.Join(errs...)
}

// read takes the records of a type out of a reply, which may also have the
// aliases that lead to them. A reply without any holds as long as its SOA record
// says (RFC 2308).
func read(reply *dns.Msg, qtype uint16) answer {
	var a answer
	shortest := uint32(1<<32 - 1)
	for _, rr := range reply.Answer {
		shortest = min(shortest, rr.Header().Ttl)
		if rr.Header().Rrtype == qtype {
			a.records = append(a.records, rr)
		}
	}
	if len(a.records) == 0 {
		shortest = 0
		for _, rr := range reply.Ns {
			if soa, ok := rr.(*dns.SOA); ok {
				shortest = min(soa.Header().Ttl, soa.Minttl)
			}
		}
	}
	a.ttl = time.Duration(shortest) * time.Second
	return a
}
