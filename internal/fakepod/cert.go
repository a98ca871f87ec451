package fakepod

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Cert is a self-signed certificate with its key. Who trusts it trusts only it.
type Cert struct {
	TLS    tls.Certificate
	PEM    []byte // the certificate, for a CA file
	KeyPEM []byte // the private key
}

// NewCert makes a certificate for host names and addresses, valid for a
// year; none means localhost, 127.0.0.1 and ::1.
func NewCert(tb testing.TB, hosts ...string) *Cert {
	tb.Helper()
	c, err := MakeCert(hosts...)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// MakeCert is NewCert outside of a test.
func MakeCert(hosts ...string) (*Cert, error) {
	if len(hosts) == 0 {
		hosts = []string{"localhost", "127.0.0.1", "::1"}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "fake pod"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * 24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return &Cert{
		TLS:    tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		PEM:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// Pool is a pool that trusts the certificate.
func (c *Cert) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(c.PEM)
	return p
}

// File writes the certificate to a file of the test's own and returns its path.
func (c *Cert) File(tb testing.TB) string {
	tb.Helper()
	f := filepath.Join(tb.TempDir(), "ca.pem")
	if err := os.WriteFile(f, c.PEM, 0o600); err != nil {
		tb.Fatal(err)
	}
	return f
}
