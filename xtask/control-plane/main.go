// Command control-plane is a Kubernetes control plane in one file: etcd, kube-apiserver,
// kube-controller-manager and kubectl, chosen by the name it is called by or else by its first argument.
//
// Tests of Kiln run on it. It holds nothing of its own but a small etcd command line: the servers are the
// published ones, built from their modules.
package main

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	which := filepath.Base(os.Args[0])
	if which == "control-plane" {
		if len(os.Args) < 2 {
			fail(2, "say which: etcd, kube-apiserver, kube-controller-manager or kubectl")
		}
		os.Args = os.Args[1:]
		which = os.Args[0]
	}
	switch which {
	case "etcd":
		if err := etcd(os.Args[1:]); err != nil {
			fail(1, err)
		}
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			fail(1, err)
		}
	default:
		fail(2, fmt.Sprintf("unknown component %q", which))
	}
}

func fail(code int, why any) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(code)
}

// etcd serves clients until it is told to stop. It takes those flags of the etcd command that the tests pass.
func etcd(args []string) error {
	cfg := embed.NewConfig()
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	flags.StringVar(&cfg.Dir, "data-dir", "", "where the data goes")
	flags.StringVar(&cfg.LogLevel, "log-level", "warn", "debug, info, warn or error")
	flags.BoolVar(&cfg.UnsafeNoFsync, "unsafe-no-fsync", false, "never wait for the disk")
	listen := flags.String("listen-client-urls", "", "address for clients, such as http://127.0.0.1:2379")
	advertise := flags.String("advertise-client-urls", "", "the same, as clients see it")
	peer := flags.String("listen-peer-urls", "", "address for peers")
	flags.Parse(args)
	for text, urls := range map[*string]*[]url.URL{
		listen:    &cfg.ListenClientUrls,
		advertise: &cfg.AdvertiseClientUrls,
		peer:      &cfg.ListenPeerUrls,
	} {
		parsed, err := url.Parse(*text)
		if err != nil {
			return err
		}
		*urls = []url.URL{*parsed}
	}
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-stop:
		return nil
	case err := <-server.Err():
		return err
	}
}
