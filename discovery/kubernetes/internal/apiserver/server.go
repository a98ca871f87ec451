// Package apiserver runs a real Kubernetes API server for tests. It has no kubelet
// and no controllers: tests write Services, EndpointSlices and Pods themselves.
package apiserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/calinix/caddy-calinix/internal/fakepod/freeport"
)

// Server is a running API server.
type Server struct {
	// Admin may do everything.
	Admin kubernetes.Interface

	dir    string
	ports  []int // API, etcd's clients, etcd's peers
	config *rest.Config
	cmd    *exec.Cmd
	log    *log
}

const adminToken = "admin-token"

// ready is how long a start may take on a busy machine.
const ready = 3 * time.Minute

// Start runs an API server until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := StartShared(t)
	t.Cleanup(s.Close)
	return s
}

// StartShared runs an API server until it is closed.
func StartShared(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "apiserver")
	must(t, err)
	s := &Server{dir: dir, log: &log{}}
	for range 3 {
		port, err := freeport.Take()
		must(t, err)
		s.ports = append(s.ports, port)
	}
	s.keys(t)
	s.launch(t)
	return s
}

// Close ends the process and removes its data.
func (s *Server) Close() {
	s.Stop()
	_ = os.RemoveAll(s.dir)
	for _, port := range s.ports {
		freeport.Give(port)
	}
}

// keys writes what the server signs tokens with, and who may do everything.
func (s *Server) keys(t testing.TB) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(s.dir, "pki"), 0o700))
	for name, data := range map[string][]byte{
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"sa.pub":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv": []byte(adminToken + `,admin,1,"system:masters"` + "\n"),
	} {
		must(t, os.WriteFile(filepath.Join(s.dir, "pki", name), data, 0o600))
	}
}

// launch starts the process and waits until it is ready.
func (s *Server) launch(t testing.TB) {
	t.Helper()
	pki := filepath.Join(s.dir, "pki")
	s.cmd = exec.Command(path(t),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+strconv.Itoa(s.ports[0]),
		"--cert-dir="+pki, "--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://127.0.0.1:"+strconv.Itoa(s.ports[0]),
		"--service-account-key-file="+filepath.Join(pki, "sa.pub"), "--service-account-signing-key-file="+filepath.Join(pki, "sa.key"),
		"--token-auth-file="+filepath.Join(pki, "tokens.csv"), "--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none")
	s.cmd.Env = append(os.Environ(), "ETCD_DIR="+s.dir, "ETCD_PORT="+strconv.Itoa(s.ports[1]), "ETCD_PEER_PORT="+strconv.Itoa(s.ports[2]))
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	dieWithUs(s.cmd)
	must(t, s.cmd.Start())
	ctx, cancel := context.WithTimeout(t.Context(), ready)
	defer cancel()
	for {
		err := s.reach(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the API server is not ready: %v\n%s", err, s.log)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// reach makes the client and asks for what every client needs.
func (s *Server) reach(ctx context.Context) error {
	ca, err := os.ReadFile(filepath.Join(s.dir, "pki", "apiserver.crt"))
	if err != nil {
		return err
	}
	s.config = &rest.Config{
		Host: "https://127.0.0.1:" + strconv.Itoa(s.ports[0]), BearerToken: adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
	if s.Admin, err = kubernetes.NewForConfig(s.config); err != nil {
		return err
	}
	if _, err := s.Admin.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return err
	}
	_, err = s.Admin.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	return err
}

// Config is how the administrator reaches the server.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// Stop ends the process; its data stays.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-done
	}
	s.cmd = nil
}

// Restart starts the server again on its old port, with its old data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.launch(t)
}

// Kubeconfig writes a kubeconfig file with a token and returns its path. Without a
// token it is the administrator's.
func (s *Server) Kubeconfig(t testing.TB, token, namespace string) string {
	t.Helper()
	if token == "" {
		token = adminToken
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthorityData: s.config.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: namespace}
	config.CurrentContext = "test"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, file))
	return file
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// log keeps the end of what the process writes.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const keptLog = 64 << 10

// Write implements [io.Writer].
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > keptLog {
		l.buf.Reset()
	}
	return l.buf.Write(p)
}

// String returns the log.
func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("--- its log:\n%s---", l.buf.String())
}
