package generate

import corev1alpha1 "refract.dev/api/core/v1alpha1"

// kindMaker makes objects of one kind.
type kindMaker struct {
	apiVersion, name string
	clusterScoped    bool
	// body returns the object without its type and metadata.
	body func(c choices, name string) Document
}

const (
	databaseGroup = "db.example.com"
	databaseKind  = "Database"
)

// kinds are the kinds of objects. Workloads appear more often than others.
var kinds = []kindMaker{
	{apiVersion: "apps/v1", name: "Deployment", body: deployment},
	{apiVersion: "apps/v1", name: "Deployment", body: deployment},
	{apiVersion: "apps/v1", name: "Deployment", body: deployment},
	{apiVersion: "apps/v1", name: "StatefulSet", body: statefulSet},
	{apiVersion: "apps/v1", name: "DaemonSet", body: daemonSet},
	{apiVersion: "batch/v1", name: "Job", body: job},
	{apiVersion: "batch/v1", name: "CronJob", body: cronJob},
	{apiVersion: "v1", name: "Pod", body: pod},
	{apiVersion: "v1", name: "ConfigMap", body: configMap},
	{apiVersion: "v1", name: "Secret", body: secret},
	{apiVersion: "v1", name: "Service", body: service},
	{apiVersion: databaseGroup + "/v1", name: databaseKind, body: database},
	{apiVersion: "rbac.authorization.k8s.io/v1", name: "ClusterRole", clusterScoped: true, body: clusterRole},
	{apiVersion: "v1", name: "Namespace", clusterScoped: true, body: func(choices, string) Document { return Document{} }},
}

// addObject adds an object, the policies that it names, and the definition of its kind if it is a custom resource.
func (b *builder) addObject() {
	k := pick(b.choices, kinds...)
	namespace := ""
	if !k.clusterScoped {
		namespace = pick(b.choices, "shop", "shop", "payments", "default", "") // Empty means default.
	}
	stem := pick(b.choices, "web", "api", "orders", "checkout")
	if namespace == "default" {
		stem += "-default" // An object without a namespace is in namespace default, so its name must differ from those in default.
	}
	name := b.name(k.name, namespace, stem)
	o := k.body(b.choices, name)
	o["apiVersion"], o["kind"], o["metadata"] = k.apiVersion, k.name, b.metadata(name, namespace)
	b.namePolicies(b.add(o), k.clusterScoped)
	if k.name == databaseKind && len(b.find(func(kind string) bool { return kind == "CustomResourceDefinition" })) == 0 {
		b.add(databaseDefinition())
	}
}

func (b *builder) metadata(name, namespace string) Document {
	m := Document{
		"name":        name,
		"labels":      Document{"app": name, "tier": pick(b.choices, "front", "back"), "app.kubernetes.io/part-of": "shop"},
		"annotations": Document{"example.com/owner": pick(b.choices, "team-a", "团队"), "image": "registry.example/tools/debug:1.0"},
	}
	if namespace != "" {
		m["namespace"] = namespace
	}
	if b.chance(10) {
		delete(m, "annotations")
	}
	if b.chance(10) { // As in the output of kubectl get.
		m["uid"], m["resourceVersion"], m["generation"] = "0e2f0c0e-6a3c-4a53-8d43-5b0a1c9a8c10", "4711", 3
		m["creationTimestamp"], m["finalizers"] = "2026-01-02T03:04:05Z", []string{"example.com/hub"}
	}
	return m
}

// namePolicies sets the labels that name the policies of an object, and adds missing policies.
func (b *builder) namePolicies(o Document, clusterScoped bool) {
	labels, namespace := labelsOf(o), namespaceOf(o)
	if b.chance(85) {
		if clusterScoped || b.chance(30) {
			labels[corev1alpha1.ClusterPropagationPolicyLabel] = b.reuse(corev1alpha1.KindClusterPropagationPolicy, "", 70, b.addPropagation)
		} else {
			labels[corev1alpha1.PropagationPolicyLabel] = b.reuse(corev1alpha1.KindPropagationPolicy, defaulted(namespace), 60, b.addPropagation)
		}
	}
	addOverride := func(namespace string) Document { return b.addOverride(namespace, o) }
	if b.chance(55) {
		labels[corev1alpha1.ClusterOverridePolicyLabel] = b.reuse(corev1alpha1.KindClusterOverridePolicy, "", 20, addOverride)
	}
	if !clusterScoped && b.chance(80) {
		labels[corev1alpha1.OverridePolicyLabel] = b.reuse(corev1alpha1.KindOverridePolicy, defaulted(namespace), 20, addOverride)
	}
}

func defaulted(namespace string) string {
	if namespace == "" {
		return "default"
	}
	return namespace
}

// reuse returns the name of a policy: with a probability of percent the name of an existing one, if there is one,
// otherwise of a new one.
func (b *builder) reuse(kind, namespace string, percent int, add func(namespace string) Document) string {
	if b.slips() {
		return pick(b.choices, "forgotten", "forgotten", "")
	}
	var names []string
	for _, d := range b.all(isPolicy) {
		if kindOf(d) == kind && namespaceOf(d) == namespace {
			names = append(names, nameOf(d))
		}
	}
	if len(names) > 0 && b.chance(percent) {
		return pick(b.choices, names...)
	}
	return nameOf(add(namespace))
}

func deployment(c choices, name string) Document {
	return Document{"spec": Document{
		"replicas": c.between(1, 9), "selector": Document{"matchLabels": Document{"app": name}}, "template": podTemplate(c, name, "Always"),
		"strategy": Document{"type": "RollingUpdate", "rollingUpdate": Document{"maxSurge": "25%", "maxUnavailable": c.IntN(2)}},
	}}
}

func statefulSet(c choices, name string) Document {
	return Document{"spec": Document{
		"replicas": c.between(1, 5), "serviceName": name, "selector": Document{"matchLabels": Document{"app": name}},
		"template": podTemplate(c, name, "Always"),
		"volumeClaimTemplates": []Document{{
			"metadata": Document{"name": "data"},
			"spec":     Document{"accessModes": []string{"ReadWriteOnce"}, "resources": Document{"requests": Document{"storage": "10Gi"}}},
		}},
	}}
}

func daemonSet(c choices, name string) Document {
	return Document{"spec": Document{"selector": Document{"matchLabels": Document{"app": name}}, "template": podTemplate(c, name, "Always")}}
}

func job(c choices, name string) Document {
	return Document{"spec": Document{"backoffLimit": c.IntN(6), "completions": 1, "template": podTemplate(c, name, "Never")}}
}

func cronJob(c choices, name string) Document {
	return Document{"spec": Document{
		"schedule": pick(c, "*/5 * * * *", "@daily"), "suspend": c.chance(20), "jobTemplate": job(c, name),
	}}
}

func pod(c choices, _ string) Document { return Document{"spec": podSpec(c, "Always")} }

func podTemplate(c choices, name, restart string) Document {
	return Document{"metadata": Document{"labels": Document{"app": name}}, "spec": podSpec(c, restart)}
}

func podSpec(c choices, restart string) Document {
	var containers []Document
	for _, name := range some(c, 3, []string{"web", "api", "proxy", "metrics"}) {
		containers = append(containers, container(c, name))
	}
	spec := Document{
		"containers": containers, "restartPolicy": restart, "terminationGracePeriodSeconds": 30,
		"nodeSelector": Document{"kubernetes.io/os": "linux"}, "volumes": []Document{{"name": "cache", "emptyDir": Document{}}},
	}
	if c.chance(40) {
		spec["initContainers"] = []Document{container(c, "init")}
	}
	return spec
}

// images are image references of every form.
var images = []string{
	"nginx", "nginx:1.29", "team/api:v1", "registry.example/shop/web:2.4.0", "localhost:5000/tools/proxy", "registry.example:8443/a/b/c:x",
	"quay.io/org/metrics:v3@sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
	"web@sha256:fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9",
}

func container(c choices, name string) Document {
	out := Document{
		"name": name, "image": pick(c, images...),
		"ports":          []Document{{"name": "http", "containerPort": 8080}},
		"readinessProbe": Document{"httpGet": Document{"path": "/ready", "port": "http"}, "periodSeconds": c.between(1, 20)},
		"resources":      Document{"requests": Document{"cpu": "100m", "memory": "128Mi"}, "limits": Document{"memory": "1Gi"}},
		"volumeMounts":   []Document{{"name": "cache", "mountPath": "/var/cache"}},
	}
	if c.chance(60) {
		out["command"] = some(c, 2, []string{"/bin/" + name, "run"})
	}
	if c.chance(80) {
		out["args"] = some(c, 4, []string{"--listen=:8080", "--log=info", "--workers=4", "yes", "--workers=4"})
	}
	if c.chance(80) {
		out["env"] = some(c, 4, []Document{
			{"name": "LOG_LEVEL", "value": "info"}, {"name": "WORKERS", "value": "4"}, {"name": "EMPTY"}, {"name": "MOTTO", "value": "a: b # c\n"},
			{"name": "NODE", "valueFrom": Document{"fieldRef": Document{"fieldPath": "spec.nodeName"}}},
		})
	}
	return out
}

func configMap(c choices, name string) Document {
	return Document{"data": Document{
		"image": pick(c, images...), "level": "info", "nginx.conf": "server {\n  listen 80;\n  server_name " + name + ";\n}\n", "limit": "010",
	}}
}

func secret(choices, string) Document {
	return Document{"type": "Opaque", "data": Document{"key": "aHVudGVyMg==", "user": "d2Vi"}}
}

func service(_ choices, name string) Document {
	return Document{"spec": Document{
		"type": "ClusterIP", "selector": Document{"app": name}, "ports": []Document{{"name": "http", "port": 80, "targetPort": 8080}},
	}}
}

func clusterRole(choices, string) Document {
	return Document{"rules": []Document{{"apiGroups": []string{""}, "resources": []string{"pods", "services"}, "verbs": []string{"get", "watch", "list"}}}}
}

// database returns an object with features that built-in kinds lack: values of every JSON type, integers beyond the
// precision of float64, and keys that must be escaped in a JSON pointer.
func database(c choices, _ string) Document {
	return Document{"spec": Document{
		"image": pick(c, images...), "engine": pick(c, "postgres", "mysql"), "encrypted": c.chance(50), "sampling": 0.25,
		"maxBytes": int64(1)<<53 + 1, "settings": Document{"io/threads": 4, "a~b": "c", "nested": Document{"~/": []any{}}},
		"shards": []any{1, "two", Document{"size": 3}, []any{true}},
	}}
}

func databaseDefinition() Document {
	return Document{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": Document{"name": "databases." + databaseGroup, "labels": Document{}},
		"spec": Document{
			"group": databaseGroup, "scope": "Namespaced",
			"names": Document{"kind": databaseKind, "listKind": databaseKind + "List", "plural": "databases", "singular": "database"},
			"versions": []Document{{"name": "v1", "served": true, "storage": true, "schema": Document{"openAPIV3Schema": Document{
				"type": "object", "properties": Document{"spec": Document{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}}}},
		},
	}
}
