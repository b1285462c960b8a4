package playground

import (
	"fmt"
	"strings"
)

// Processes are stopped by descending rank, so that none has to go without what
// it depends on.
const (
	rankEtcd = iota
	rankAPIServer
	rankClient
)

// podsCIDR is where Pods have their addresses, which nobody can reach.
const podsCIDR = "10.244.0.0/16"

// apiServerHosts are the names an API server answers to, beside the address of its Service.
var apiServerHosts = []string{
	"127.0.0.1", "localhost",
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// hubControllers keep a hub clean: what is deleted goes away with all it owns,
// and service accounts and aggregated roles work. Workloads are left alone: they
// are templates there, to be run by the members.
var hubControllers = []string{
	"namespace-controller",
	"garbage-collector-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"root-ca-certificate-publisher-controller",
	"clusterrole-aggregation-controller",
	// Without these, the API server would keep what users delete.
	"persistentvolumeclaim-protection-controller",
	"persistentvolume-protection-controller",
	"volumeattributesclass-protection-controller",
}

// podArgs have an API server be found by Pods that really run, and ask their kubelets for logs.
func (c *cluster) podArgs() []string {
	return []string{
		"--advertise-address=" + c.address,
		"--authorization-mode=Node,RBAC",
		"--kubelet-client-certificate=" + adminFile + ".crt",
		"--kubelet-client-key=" + adminFile + ".key",
		"--kubelet-preferred-address-types=InternalIP",
	}
}

// auditPolicy has writes recorded, and not what was written.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
`

// component is one of the programs of a cluster.
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
		"--unsafe-no-fsync", // Nothing is kept, so a crash of the machine loses nothing.
	}
	if c.large {
		args = append(args, "--max-request-bytes=8388608", "--quota-backend-bytes=17179869184") // API servers send 2 MiB at most.
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
		"--allow-privileged", // As kubeadm has it: manifests made for real clusters are welcome.
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
			// Endpoints must not be on a loopback address, and there may be no other: so
			// the Service "kubernetes" has none. No Pod really runs that could miss it.
			"--advertise-address=127.0.0.1",
			"--endpoint-reconciler-type=none")
	}
	if c.audit {
		args = append(args, "--audit-policy-file="+auditPolicyFile, "--audit-log-path="+auditLogFile,
			"--audit-log-maxsize=0") // One file, however long it becomes.
	}
	return component{name: string(APIServer), rank: rankAPIServer, args: args}
}

// controllersComponent returns the controllers that the cluster's role asks for.
func (c *cluster) controllersComponent() component {
	controllers := []string{"*"}
	if c.role == hub && !c.runsPods() {
		controllers = hubControllers
	}
	return component{name: "kube-controller-manager", rank: rankClient, args: []string{
		"--kubeconfig=" + controllersConfig,
		"--controllers=" + strings.Join(controllers, ","),
		"--use-service-account-credentials", // Each acts under its own name, as in a real cluster.
		"--root-ca-file=" + caFile + ".crt",
		"--service-account-private-key-file=" + signingFile + ".key",
		"--cluster-signing-cert-file=" + caFile + ".crt",
		"--cluster-signing-key-file=" + caFile + ".key",
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		"--kube-api-qps=200", // The API server is idle, so let work be done at once.
		"--kube-api-burst=400",
	}}
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

// kwokComponent returns the kubelets. It serves nothing, so it needs no port.
func (c *cluster) kwokComponent() component {
	return component{name: "kwok", rank: rankClient, args: []string{
		"--kubeconfig=" + kwokConfig,
		"--config=" + stagesFile,
		"--manage-all-nodes",
		"--cidr=" + podsCIDR,
		"--node-lease-duration-seconds=40", // The kubelet's default: without, Nodes are taken for dead.
	}}
}
