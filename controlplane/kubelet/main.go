// Command kubelet has the programs of a Node in one binary, the kubelet and kube-proxy, like the binary controlplane.
// They are separate because only `make test-node` uses them, and every developer builds the control plane.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics.
	_ "k8s.io/component-base/metrics/prometheus/version"  // The version of the build as a metric.
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"refract.dev/controlplane/internal/multicall"
)

func main() {
	components := multicall.Components{
		"kubelet":    func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
		"kube-proxy": func() int { return cli.Run(proxy.NewProxyCommand()) },
	}
	run, args, err := components.Choose(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Args = args // The components read their flags from here.
	os.Exit(run())
}
