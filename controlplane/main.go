// Command controlplane is a Kubernetes control plane in one binary: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kwok instead of kubelets, and kubectl for inspection.
//
// Call it by the name of a component through a symlink, or give the name as the first argument: `controlplane
// kube-apiserver --help`. The components share most of their code, so one binary builds and loads faster than six.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // Time zones for CronJobs, on machines without installed time zones.

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // The authentication methods of kubectl.
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json.
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics.
	_ "k8s.io/component-base/metrics/prometheus/version"  // The version of the build as a metric.
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"refract.dev/controlplane/internal/multicall"
)

func main() {
	components := multicall.Components{
		"etcd":                    runEtcd,
		"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
		"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
		"kubectl":                 runKubectl,
		"kwok":                    runKwok,
	}
	run, args, err := components.Choose(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Args = args // The components read their flags from here.
	os.Exit(run())
}

// runEtcd ends the process itself if etcd fails.
func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}
