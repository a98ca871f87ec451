// Command testserver is a real kube-apiserver with its etcd in the same process,
// for tests on loopback. It takes kube-apiserver's flags, and from the environment
//
//	ETCD_DIR        where etcd keeps its data
//	ETCD_PORT       the port on which it serves the API server
//	ETCD_PEER_PORT  the port for peers, of which it has none
//
// It is a Go module of its own: nothing else should have to download Kubernetes.
package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	endpoint, err := startEtcd(os.Getenv("ETCD_DIR"), os.Getenv("ETCD_PORT"), os.Getenv("ETCD_PEER_PORT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "testserver: starting etcd:", err)
		os.Exit(1)
	}
	os.Args = append(os.Args, "--etcd-servers="+endpoint)
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}

// startEtcd runs an etcd and returns the URL of its clients.
func startEtcd(dir, port, peerPort string) (string, error) {
	if dir == "" || port == "" || peerPort == "" {
		return "", fmt.Errorf("want ETCD_DIR, ETCD_PORT and ETCD_PEER_PORT")
	}
	clients := url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
	peers := url.URL{Scheme: "http", Host: "127.0.0.1:" + peerPort}
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "etcd")
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.UnsafeNoFsync = true // its data lives as long as a test
	c.LogLevel = "error"
	server, err := embed.StartEtcd(c)
	if err != nil {
		return "", err
	}
	<-server.Server.ReadyNotify()
	return clients.String(), nil
}
