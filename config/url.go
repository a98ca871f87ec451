package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Address is where a pod listens.
type Address struct {
	Scheme string // http or https
	Host   string // a name in lower case or an IP address, IPv6 without brackets
	Port   int
}

// HostPort is the address to dial; an IPv6 host stands in brackets.
func (a Address) HostPort() string {
	return net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
}

// String is the canonical URL, always with a port: two URLs that mean the same
// listener have the same one.
func (a Address) String() string {
	host := a.HostPort()
	return a.Scheme + "://" + strings.ReplaceAll(host, "%", "%25")
}

var (
	errScheme   = errors.New("unknown scheme, want http or https")
	errUserinfo = errors.New("user name and password are not supported in the URL of a pod; a header_up Authorization line can carry them")
)

// ParseURL reads the URL of a pod: scheme, host and, unless it is the scheme's
// own, port. Anything more is refused, but for a single slash at the end.
func ParseURL(s string) (Address, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return Address{}, fmt.Errorf("no scheme, want http://%s or https://%s", s, s)
	}
	a := Address{Scheme: strings.ToLower(scheme)}
	switch a.Scheme {
	case "http":
		a.Port = 80
	case "https":
		a.Port = 443
	default:
		return Address{}, errScheme
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
		if rest[i:] != "/" {
			return Address{}, errors.New("want no path, query or fragment: the client's request brings them")
		}
	}
	if strings.Contains(authority, "@") {
		return Address{}, errUserinfo
	}
	if strings.Count(authority, ":") > 1 && !strings.HasPrefix(authority, "[") {
		return Address{}, errors.New("an IPv6 address needs brackets, as in http://[::1]:8000")
	}
	u, err := url.Parse(a.Scheme + "://" + authority)
	if err != nil {
		var detail *url.Error
		if errors.As(err, &detail) {
			err = detail.Err
		}
		return Address{}, err
	}
	a.Host = strings.ToLower(u.Hostname())
	if err := checkHost(a.Host, strings.HasPrefix(authority, "[")); err != nil {
		return Address{}, err
	}
	if strings.HasSuffix(authority, ":") {
		return Address{}, errors.New("no port after the colon")
	}
	if p := u.Port(); p != "" {
		port, err := strconv.Atoi(p)
		if err != nil || port < 1 || port > 65535 {
			return Address{}, fmt.Errorf("port %s is out of range, want 1 to 65535", p)
		}
		a.Port = port
	}
	return a, nil
}

// checkHost tells what is wrong with a host, IPv6 addresses only in brackets.
func checkHost(host string, brackets bool) error {
	if host == "" {
		return errors.New("no host")
	}
	ip, err := netip.ParseAddr(host)
	if brackets {
		if err != nil || !ip.Is6() {
			return fmt.Errorf("%q is not an IPv6 address", host)
		}
		return nil
	}
	if err == nil {
		return nil
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, label := range labels {
		if len(label) == 0 || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return fmt.Errorf("%q is not a host name", host)
		}
	}
	if len(host) > 253 || strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return fmt.Errorf("%q is neither a host name nor an IP address", host)
	}
	return nil
}
