package testcaddy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/calinix/caddy-calinix/internal/fakepod"
)

// writeCert makes the certificate of Serve's sites, for localhost.
func writeCert() error {
	c, err := fakepod.MakeCert("localhost", "127.0.0.1", "::1")
	if err != nil {
		return err
	}
	if err := os.WriteFile(certFile(), c.PEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(keyFile(), c.KeyPEM, 0o600)
}

func certFile() string { return filepath.Join(home, "cert.pem") }
func keyFile() string  { return filepath.Join(home, "key.pem") }

// CertFiles are the paths of a certificate for localhost, 127.0.0.1 and ::1 and
// of its key, for configurations that do not come from Serve: a directive
// "tls CERT KEY". Whoever trusts the certificate trusts Serve's sites.
func CertFiles() (cert, key string) { return certFile(), keyFile() }

// RootCAs trusts Serve's sites and, if there is one by now, the local CA of
// tls internal.
func RootCAs(tb testing.TB) *x509.CertPool {
	tb.Helper()
	pool := x509.NewCertPool()
	for _, path := range []string{certFile(), LocalCAFile()} {
		pem, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && path != certFile() {
			continue
		}
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			tb.Fatalf("%s holds no certificate (%v)", path, err)
		}
	}
	return pool
}

// LocalCAFile is where the certificate of the local CA is once Caddy has made it
// for a site with tls internal.
func LocalCAFile() string {
	return filepath.Join(home, "data", "caddy", "pki", "authorities", "local", "root.crt")
}

// insecure is for asking whether there is a certificate; clients verify it.
func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// WaitTLS waits until the server at host:port has its certificate. Sites with
// tls internal need it: their loading ends earlier.
func WaitTLS(tb testing.TB, addr string) {
	tb.Helper()
	var err error
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		var c *tls.Conn
		if c, err = tls.Dial("tcp", addr, insecure()); err == nil {
			c.Close()
			return
		}
	}
	tb.Fatalf("%s has no certificate after %v: %v", addr, Patience, err)
}
