package cluster

// configuration has the configuration files of the node's programs, by file name. Words in capitals are replaced by values.
var configuration = map[string]string{
	// The filter of system calls would need a C library: see controlplane/node/unfiltered. Only a fully privileged
	// process can lower the OOM score of a container, and no test depends on that.
	"containerd.toml": `version = 3
[plugins.'io.containerd.internal.v1.opt']
  path = 'RUN/containerd/opt'
[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'SANDBOX'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = 'BIN/unfiltered'
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['BIN']
  conf_dir = 'DIR/cni'
`,
	"cni/10-bridge.conflist": `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`,
	"resolv.conf": "", // The node has no DNS server.
	"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://CONTAINERD
cgroupDriver: cgroupfs
cgroupRoot: CGROUP
failCgroupV1: false
failSwapOn: false
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: DIR/ca.crt}}
authorization: {mode: Webhook}
# The disk of a machine for tests may be almost full, and images are not to be had again.
evictionHard: {memory.available: 10Mi, nodefs.available: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
resolvConf: DIR/resolv.conf
volumePluginDir: RUN/kubelet-plugins
`,
	"kube-proxy.yaml": `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: DIR/kube-proxy.kubeconfig}
clusterCIDR: 10.244.0.0/16
hostnameOverride: NAME
# Tables of connections are as the kernel has them: their size is that of the machine.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`,
}
