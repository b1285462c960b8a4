package playground

import (
	"fmt"
	"strings"
)

// Processes are stopped in the order of descending ranks, so that none loses a process that it depends on.
const (
	rankEtcd = iota
	rankAPIServer
	rankClient
)

// podsCIDR is the CIDR of the Pods. No Pod can be reached at its address.
const podsCIDR = "10.244.0.0/16"

// apiServerHosts are the names of an API server, in addition to the addresses of its Service.
var apiServerHosts = []string{
	"127.0.0.1", "localhost",
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// hubControllers are the controllers of a hub. They delete the dependents of deleted objects, and maintain service
// accounts and aggregated roles. No controller runs workloads, because workloads on a hub are only templates for the
// members.
var hubControllers = []string{
	"namespace-controller",
	"garbage-collector-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"root-ca-certificate-publisher-controller",
	"clusterrole-aggregation-controller",
	// Without these controllers, finalizers would keep objects that users delete.
	"persistentvolumeclaim-protection-controller",
	"persistentvolume-protection-controller",
	"volumeattributesclass-protection-controller",
}

// podArgs returns the flags for an API server whose Pods run in containers. With them, the Pods can reach the API
// server, and the API server can read logs from kubelets.
func (c *cluster) podArgs() []string {
	return []string{
		"--advertise-address=" + c.address,
		"--authorization-mode=Node,RBAC",
		"--kubelet-client-certificate=" + adminFile + ".crt",
		"--kubelet-client-key=" + adminFile + ".key",
		"--kubelet-preferred-address-types=InternalIP",
	}
}

// auditPolicy records the metadata of writes, without their content.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
`

// component is a program of a cluster.
type component struct {
	name string
	rank int
	args []string
}

// etcdComponent returns the etcd that serves clients at the first of two ports.
func (c *cluster) etcdComponent(ports []int) component {
	client, peer := local(ports[0]), local(ports[1])
	args := []string{
		"--name=" + c.Name,
		"--data-dir=" + etcdData,
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + c.Name + "=" + peer,
		"--trusted-ca-file=" + etcdCAFile + ".crt",
		"--cert-file=" + etcdServerFile + ".crt",
		"--key-file=" + etcdServerFile + ".key",
		"--client-cert-auth",
		"--peer-trusted-ca-file=" + etcdCAFile + ".crt",
		"--peer-cert-file=" + etcdServerFile + ".crt",
		"--peer-key-file=" + etcdServerFile + ".key",
		"--peer-client-cert-auth",
		"--log-level=warn",
		"--unsafe-no-fsync", // The data is temporary, so it may be lost in a crash of the machine.
	}
	if c.large {
		args = append(args, "--max-request-bytes=8388608", "--quota-backend-bytes=17179869184") // API servers limit their requests to 2 MiB.
	}
	return component{name: string(Etcd), rank: rankEtcd, args: args}
}

// apiServerComponent returns the API server that serves at the port.
func (c *cluster) apiServerComponent(ports []int) component {
	args := []string{
		"--etcd-servers=" + c.Etcd,
		"--etcd-cafile=" + etcdCAFile + ".crt",
		"--etcd-certfile=" + etcdClientFile + ".crt",
		"--etcd-keyfile=" + etcdClientFile + ".key",
		fmt.Sprintf("--secure-port=%d", ports[0]),
		"--tls-cert-file=" + apiServerFile + ".crt",
		"--tls-private-key-file=" + apiServerFile + ".key",
		"--client-ca-file=" + caFile + ".crt",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + signingFile + ".crt",
		"--service-account-signing-key-file=" + signingFile + ".key",
		"--allow-privileged", // This is also set by kubeadm, so manifests for real clusters work.
		"--profiling=false",
	}
	args = append(args, c.Traits.apiServerArgs()...)
	if c.address != "" {
		args = append(args, "--bind-address=0.0.0.0")
	} else {
		args = append(args, "--bind-address=127.0.0.1")
	}
	if c.runsPods() {
		args = append(args, c.podArgs()...)
	} else {
		args = append(args,
			"--authorization-mode=RBAC",
			// An endpoint must not have a loopback address, and the machine may have no other address. So the Service
			// "kubernetes" has no endpoints. Simulated Pods do not need them.
			"--advertise-address=127.0.0.1",
			"--endpoint-reconciler-type=none")
	}
	if c.audit {
		args = append(args, "--audit-policy-file="+auditPolicyFile, "--audit-log-path="+auditLogFile,
			"--audit-log-maxsize=0") // The log is never rotated.
	}
	return component{name: string(APIServer), rank: rankAPIServer, args: args}
}

// controllersComponent returns the controller manager with the controllers for the cluster's role.
func (c *cluster) controllersComponent() component {
	controllers := []string{"*"}
	if c.role == hub && !c.runsPods() {
		controllers = hubControllers
	}
	args := []string{
		"--kubeconfig=" + controllersConfig,
		"--controllers=" + strings.Join(controllers, ","),
		"--use-service-account-credentials", // Each controller has its own account, as in a real cluster.
		"--root-ca-file=" + caFile + ".crt",
		"--service-account-private-key-file=" + signingFile + ".key",
		"--cluster-signing-cert-file=" + caFile + ".crt",
		"--cluster-signing-key-file=" + caFile + ".key",
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		"--kube-api-qps=200", // The default is low, to protect a busy API server.
		"--kube-api-burst=400",
	}
	if c.role == full {
		// After an outage of the API server, the controllers would mark the Pods of silent Nodes as not ready. A kubelet
		// would correct that; kwok does not.
		args = append(args, "--node-monitor-grace-period=24h")
	}
	return component{name: "kube-controller-manager", rank: rankClient, args: args}
}

func (c *cluster) schedulerComponent() component {
	return component{name: "kube-scheduler", rank: rankClient, args: []string{
		"--kubeconfig=" + schedulerConfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}}
}

// kwokComponent returns kwok, which simulates the kubelets. It listens on no port.
func (c *cluster) kwokComponent() component {
	return component{name: "kwok", rank: rankClient, args: []string{
		"--kubeconfig=" + kwokConfig,
		"--config=" + stagesFile,
		"--manage-all-nodes",
		"--cidr=" + podsCIDR,
		"--node-lease-duration-seconds=40", // This is the kubelet's default. Without Leases, controllers would treat the Nodes as unreachable.
	}}
}
