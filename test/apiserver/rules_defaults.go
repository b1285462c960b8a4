package apiserver

import (
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// defaultPod sets the defaults of a pod spec.
func defaultPod(spec map[string]any) {
	fill(spec, map[string]any{
		"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": int64(30),
		"schedulerName": "default-scheduler", "securityContext": map[string]any{},
	})
	if name, ok := spec["serviceAccountName"]; ok {
		fill(spec, map[string]any{"serviceAccount": name})
	}
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range objects(spec, list) {
			defaultContainer(c)
		}
	}
	for _, v := range objects(spec, "volumes") {
		for _, source := range []string{"configMap", "secret", "downwardAPI", "projected"} {
			if of := at(v, source); of != nil {
				fill(of, map[string]any{"defaultMode": int64(420)})
			}
		}
	}
}

func defaultContainer(c map[string]any) {
	image, _ := c["image"].(string)
	pull, name := "IfNotPresent", image[strings.LastIndex(image, "/")+1:]
	if !strings.Contains(image, "@") && (!strings.Contains(name, ":") || strings.HasSuffix(name, ":latest")) {
		pull = "Always"
	}
	fill(c, map[string]any{
		"imagePullPolicy": pull, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "resources": map[string]any{},
	})
	for _, p := range objects(c, "ports") {
		fill(p, map[string]any{"protocol": "TCP"})
	}
	for _, name := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		p := at(c, name)
		if p == nil {
			continue
		}
		fill(p, map[string]any{"timeoutSeconds": int64(1), "periodSeconds": int64(10), "successThreshold": int64(1), "failureThreshold": int64(3)})
		if get := at(p, "httpGet"); get != nil {
			fill(get, map[string]any{"path": "/", "scheme": "HTTP"})
		}
	}
	for _, e := range objects(c, "env") {
		if ref := at(e, "valueFrom", "fieldRef"); ref != nil {
			fill(ref, map[string]any{"apiVersion": "v1"})
		}
	}
}

func defaultTemplate(o map[string]any, path ...string) {
	if spec := at(o, path...); spec != nil {
		defaultPod(spec)
	}
}

func defaultDeployment(o map[string]any) {
	spec := sub(o, "spec")
	fill(spec, map[string]any{"replicas": int64(1), "revisionHistoryLimit": int64(10), "progressDeadlineSeconds": int64(600), "strategy": map[string]any{}})
	strategy := sub(spec, "strategy")
	fill(strategy, map[string]any{"type": "RollingUpdate"})
	if strategy["type"] == "RollingUpdate" {
		fill(strategy, map[string]any{"rollingUpdate": map[string]any{}})
		fill(sub(strategy, "rollingUpdate"), map[string]any{"maxUnavailable": "25%", "maxSurge": "25%"})
	}
	defaultTemplate(o, "spec", "template", "spec")
}

func defaultStatefulSet(o map[string]any) {
	spec := sub(o, "spec")
	fill(spec, map[string]any{
		"replicas": int64(1), "revisionHistoryLimit": int64(10), "podManagementPolicy": "OrderedReady", "updateStrategy": map[string]any{},
		"persistentVolumeClaimRetentionPolicy": map[string]any{"whenDeleted": "Retain", "whenScaled": "Retain"},
	})
	strategy := sub(spec, "updateStrategy")
	fill(strategy, map[string]any{"type": "RollingUpdate"})
	if strategy["type"] == "RollingUpdate" {
		fill(strategy, map[string]any{"rollingUpdate": map[string]any{}})
		fill(sub(strategy, "rollingUpdate"), map[string]any{"partition": int64(0)})
	}
	for _, claim := range objects(spec, "volumeClaimTemplates") {
		claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
		defaultClaim(claim)
	}
	defaultTemplate(o, "spec", "template", "spec")
}

func defaultDaemonSet(o map[string]any) {
	spec := sub(o, "spec")
	fill(spec, map[string]any{"revisionHistoryLimit": int64(10), "updateStrategy": map[string]any{}})
	strategy := sub(spec, "updateStrategy")
	fill(strategy, map[string]any{"type": "RollingUpdate"})
	if strategy["type"] == "RollingUpdate" {
		fill(strategy, map[string]any{"rollingUpdate": map[string]any{}})
		fill(sub(strategy, "rollingUpdate"), map[string]any{"maxUnavailable": int64(1), "maxSurge": int64(0)})
	}
	defaultTemplate(o, "spec", "template", "spec")
}

func defaultReplicaSet(o map[string]any) {
	fill(sub(o, "spec"), map[string]any{"replicas": int64(1)})
	defaultTemplate(o, "spec", "template", "spec")
}

func defaultJobSpec(spec, meta map[string]any) {
	_, completions := spec["completions"]
	_, parallelism := spec["parallelism"]
	if !completions && !parallelism {
		spec["completions"], spec["parallelism"] = int64(1), int64(1)
	}
	fill(spec, map[string]any{
		"parallelism": int64(1), "backoffLimit": int64(6), "completionMode": "NonIndexed", "suspend": false,
		"podReplacementPolicy": "TerminatingOrFailed", "manualSelector": false,
	})
	if template := at(spec, "template", "spec"); template != nil {
		defaultPod(template)
	}
	if labels := at(spec, "template", "metadata", "labels"); meta != nil && len(labels) > 0 && len(at(meta, "labels")) == 0 {
		meta["labels"] = labels // Shared, as in kube-apiserver: the Job also gets labels that the server adds to the template later.
	}
}

func defaultJob(o map[string]any) { defaultJobSpec(sub(o, "spec"), sub(o, "metadata")) }

// rereadJob copies the labels of the template to a Job without labels.
func rereadJob(o map[string]any) bool {
	none := len(at(o, "metadata", "labels")) == 0
	defaultJob(o)
	return none && len(at(o, "metadata", "labels")) > 0
}

func defaultCronJob(o map[string]any) {
	spec := sub(o, "spec")
	fill(spec, map[string]any{"concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": int64(3), "failedJobsHistoryLimit": int64(1)})
	if job := at(spec, "jobTemplate", "spec"); job != nil {
		if template := at(job, "template", "spec"); template != nil {
			defaultPod(template)
		}
	}
}

func defaultClaim(o map[string]any) {
	fill(sub(o, "spec"), map[string]any{"volumeMode": "Filesystem"})
	fill(sub(o, "status"), map[string]any{"phase": "Pending"})
}

func defaultVolume(o map[string]any) {
	fill(sub(o, "spec"), map[string]any{"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"})
	fill(sub(o, "status"), map[string]any{"phase": "Pending"})
}

func defaultService(o map[string]any) {
	spec := sub(o, "spec")
	fill(spec, map[string]any{"type": "ClusterIP", "sessionAffinity": "None"})
	if spec["type"] != "ExternalName" {
		fill(spec, map[string]any{"internalTrafficPolicy": "Cluster"})
	}
	if spec["type"] == "NodePort" || spec["type"] == "LoadBalancer" {
		fill(spec, map[string]any{"externalTrafficPolicy": "Cluster"})
	}
	if spec["type"] == "LoadBalancer" {
		fill(spec, map[string]any{"allocateLoadBalancerNodePorts": true})
	}
	for _, p := range objects(spec, "ports") {
		fill(p, map[string]any{"protocol": "TCP"})
		if t, ok := p["targetPort"]; !ok || t == int64(0) || t == "" {
			p["targetPort"] = p["port"]
		}
	}
}

// defaultSecret also moves stringData to data.
func defaultSecret(o map[string]any) {
	fill(o, map[string]any{"type": "Opaque"})
	for key, value := range at(o, "stringData") {
		if value, ok := value.(string); ok {
			sub(o, "data")[key] = base64.StdEncoding.EncodeToString([]byte(value))
		}
	}
	delete(o, "stringData")
}

func defaultNamespace(o map[string]any) {
	fill(sub(o, "status"), map[string]any{"phase": "Active"})
	name, _ := at(o, "metadata")["name"].(string)
	if name != "" {
		sub(sub(o, "metadata"), "labels")["kubernetes.io/metadata.name"] = name
	}
}

func defaultAutoscaler(o map[string]any) {
	spec := sub(o, "spec")
	fill(spec, map[string]any{"minReplicas": int64(1)})
	if _, ok := spec["metrics"]; !ok {
		spec["metrics"] = []any{map[string]any{
			"type": "Resource", "resource": map[string]any{"name": "cpu", "target": map[string]any{"type": "Utilization", "averageUtilization": int64(80)}},
		}}
	}
}

// allocate assigns the addresses and ports of a Service.
func allocate(s *Server, u, live *unstructured.Unstructured) {
	spec := sub(u.Object, "spec")
	if spec["type"] == "ExternalName" {
		return
	}
	was := map[string]any{}
	if live != nil {
		was = at(live.Object, "spec")
		if was["type"] == "LoadBalancer" && spec["type"] != "LoadBalancer" {
			delete(spec, "allocateLoadBalancerNodePorts")
		}
		for _, key := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} {
			if value, ok := was[key]; ok {
				if _, said := spec[key]; !said {
					spec[key] = runtime.DeepCopyJSONValue(value)
				}
			}
		}
	}
	st := s.stores[schema.GroupResource{Resource: "services"}]
	if ip, _ := spec["clusterIP"].(string); ip == "" {
		spec["clusterIP"] = s.address(st)
	}
	fill(spec, map[string]any{"clusterIPs": []any{spec["clusterIP"]}, "ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack"})
	if spec["type"] == "NodePort" || spec["type"] == "LoadBalancer" {
		s.allocatePorts(st, spec, was)
		return
	}
	if live != nil && was["type"] != spec["type"] {
		for _, p := range objects(spec, "ports") {
			delete(p, "nodePort")
		}
	}
}
