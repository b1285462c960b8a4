package simulate

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// good is an object that users have in each namespace.
type good struct {
	kind
	object string
	// often is the percentage of worlds that have the object at the beginning.
	often int
	// travels is true if the object usually has no policy label of its own, and so follows objects that refer to it.
	travels bool
	fields  func(w *World) map[string]any
	edits   []edit
}

// edit changes an object. It returns false if this is impossible.
type edit func(w *World, o *unstructured.Unstructured) bool

// goods are all objects that users may have in a namespace. There are few names, so that users, policies and clusters
// use the same objects.
//
//nolint:gochecknoglobals // It is a constant.
var goods = append([]good{
	{kindDeployment, "web", 95, false, webFields, deploymentEdits},
	{kindDeployment, "api", 70, false, apiFields, deploymentEdits},
	{kindConfigMap, "settings", 90, true, configFields, configEdits},
	{kindSecret, "keys", 80, true, secretFields, secretEdits},
	{kindClaim, "data", 70, true, claimFields, claimEdits},
	{kindService, "web", 70, false, serviceFields, serviceEdits},
	{kindJob, "migrate", 50, false, jobFields, jobEdits},
	{kindScaler, "web", 30, false, scalerFields, scalerEdits},
	{kindStateful, "db", 30, false, statefulFields, deploymentEdits},
	{kindAccount, "runner", 50, true, accountFields, []edit{changeLabel}},
	{kindCron, "nightly", 25, false, cronFields, []edit{changeSchedule, changeLabel}},
	{kindWidget, "gear", 50, false, widgetFields, widgetEdits},
	// Kubernetes creates these objects in each namespace of each cluster. Users may label them, too.
	{kindAccount, "default", 10, false, accountFields, []edit{changeLabel}},
	{kindConfigMap, "kube-root-ca.crt", 10, false, configFields, configEdits},
}, pages()...)

// pages returns nine ConfigMaps. With the other ConfigMaps, a namespace may have more than ten, so that the guard
// judges their deletion.
func pages() (all []good) {
	for i := range 9 {
		all = append(all, good{kindConfigMap, fmt.Sprintf("page-%d", i+1), 60, false, configFields, configEdits})
	}
	return all
}

// new returns the object with its first content.
func (g *good) new(w *World, space string) *unstructured.Unstructured {
	o := object(g.kind, space, g.object, g.fields(w))
	switch n := w.Rand.IntN(20); {
	case g.travels && n < 15:
	case n < 15:
		label(o, corev1alpha1.PropagationPolicyLabel, "all")
	case n < 17:
		label(o, corev1alpha1.PropagationPolicyLabel, "some")
	case n < 18:
		label(o, corev1alpha1.ClusterPropagationPolicyLabel, "everywhere")
	case n < 19:
		label(o, corev1alpha1.PropagationPolicyLabel, "gone")
	}
	if w.Rand.IntN(4) == 0 {
		label(o, corev1alpha1.OverridePolicyLabel, "local")
	}
	if w.Rand.IntN(4) == 0 {
		label(o, rolloutLabel, "careful")
	}
	return o
}

func label(o *unstructured.Unstructured, key, value string) {
	all := o.GetLabels()
	if all == nil {
		all = map[string]string{}
	}
	if value == "" {
		delete(all, key)
	} else {
		all[key] = value
	}
	o.SetLabels(all)
}

func (w *World) image() string {
	if w.Rand.IntN(8) == 0 {
		return "registry.sim/web:broken"
	}
	return fmt.Sprintf("registry.sim/web:%d", 1+w.Rand.IntN(9))
}

func anything(v any) map[string]any {
	var out map[string]any
	if err := json.Unmarshal(encoded(v), &out); err != nil {
		panic(err) // It was encoded right before.
	}
	return whole(out).(map[string]any) //nolint:forcetypeassert // Its type is the same.
}

// whole converts numbers without a fraction to integers, like the decoder of an API server.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, e := range v {
			v[key] = whole(e)
		}
	case []any:
		for i, e := range v {
			v[i] = whole(e)
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}

// fields is a short name for literals.
type fields = map[string]any

func template(app, image string, extra fields) fields {
	container := fields{"name": "web", "image": image}
	spec := fields{}
	for key, v := range extra {
		if key == "envFrom" || key == "env" || key == "volumeMounts" {
			container[key] = v
		} else {
			spec[key] = v
		}
	}
	spec["containers"] = []any{container}
	return fields{"metadata": fields{"labels": fields{"app": app}}, "spec": spec}
}

func webFields(w *World) map[string]any {
	return anything(fields{"spec": fields{
		"replicas": 1 + w.Rand.IntN(6), "selector": fields{"matchLabels": fields{"app": "web"}},
		"template": template("web", w.image(), references(7)),
	}})
}

func apiFields(w *World) map[string]any {
	return anything(fields{"spec": fields{
		"replicas": 1 + w.Rand.IntN(3), "selector": fields{"matchLabels": fields{"app": "api"}},
		"template": template("api", w.image(), references(w.Rand.IntN(16))),
	}})
}

// referred are the objects that pods may refer to, by bit.
//
//nolint:gochecknoglobals // It is a constant.
var referred = []string{"ConfigMap settings", "Secret keys", "PersistentVolumeClaim data", "ServiceAccount runner"}

// references returns references to the objects of [referred] whose bits are set.
func references(which int) fields {
	extra := fields{}
	var from []any
	if which&1 != 0 {
		from = append(from, fields{"configMapRef": fields{"name": "settings"}})
	}
	if which&2 != 0 {
		from = append(from, fields{"secretRef": fields{"name": "keys"}})
	}
	if from != nil {
		extra["envFrom"] = from
	}
	if which&8 != 0 {
		extra["serviceAccountName"] = "runner"
	}
	if which&4 != 0 {
		extra["volumes"] = []any{fields{"name": "data", "persistentVolumeClaim": fields{"claimName": "data"}}}
		extra["volumeMounts"] = []any{fields{"name": "data", "mountPath": "/data"}}
	}
	return extra
}

func statefulFields(w *World) map[string]any {
	return anything(fields{"spec": fields{
		"replicas": 1 + w.Rand.IntN(3), "serviceName": "db", "selector": fields{"matchLabels": fields{"app": "db"}},
		"template": template("db", w.image(), references(w.Rand.IntN(4))),
	}})
}

func accountFields(*World) map[string]any {
	return anything(fields{"automountServiceAccountToken": false})
}

func cronFields(w *World) map[string]any {
	pod := template("nightly", w.image(), references(w.Rand.IntN(2)))
	pod["spec"].(fields)["restartPolicy"] = "Never" //nolint:forcetypeassert // It was made above.
	return anything(fields{"spec": fields{"schedule": "0 3 * * *", "jobTemplate": fields{"spec": fields{"template": pod}}}})
}

func configFields(w *World) map[string]any {
	return anything(fields{"data": fields{"level": fmt.Sprint(w.Rand.IntN(100))}})
}

func secretFields(w *World) map[string]any {
	return anything(fields{"data": fields{"password": base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "secret-%d", w.Rand.IntN(100)))}})
}

func claimFields(*World) map[string]any {
	return anything(fields{"spec": fields{"accessModes": []any{"ReadWriteOnce"}, "resources": fields{"requests": fields{"storage": "1Gi"}}}})
}

func serviceFields(w *World) map[string]any {
	kind := "ClusterIP"
	switch w.Rand.IntN(6) {
	case 0:
		kind = "NodePort"
	case 1:
		kind = "LoadBalancer"
	}
	return anything(fields{"spec": fields{"type": kind, "selector": fields{"app": "web"},
		"ports": []any{fields{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}}}})
}

func jobFields(w *World) map[string]any {
	pod := template("migrate", w.image(), references(w.Rand.IntN(2)))
	pod["spec"].(fields)["restartPolicy"] = "Never" //nolint:forcetypeassert // It was made above.
	spec := fields{"template": pod, "backoffLimit": 1}
	if w.Rand.IntN(2) == 0 {
		spec["ttlSecondsAfterFinished"] = 10 * w.Rand.IntN(10)
	}
	return anything(fields{"spec": spec})
}

func scalerFields(w *World) map[string]any {
	return anything(fields{"spec": fields{
		"scaleTargetRef": fields{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 2 + w.Rand.IntN(8),
		"metrics": []any{fields{"type": "Resource", "resource": fields{"name": "cpu", "target": fields{"type": "Utilization", "averageUtilization": 60}}}},
	}})
}

func widgetFields(w *World) map[string]any {
	return anything(fields{"spec": fields{"size": w.Rand.IntN(10), "color": "red", "parts": []any{"a", "b"}}})
}

// variant is a possible spec of a policy.
type variant struct {
	text   string
	fields fields
}

func (v variant) spec() map[string]any { return anything(v.fields) }

// placementSpecs are the possible specs of a PropagationPolicy. The first one selects all clusters.
//
//nolint:gochecknoglobals // It is a constant.
var placementSpecs = []variant{
	{"all clusters", fields{"schedulingMode": "Duplicate"}},
	{"clusters with the label tier=prod", fields{"schedulingMode": "Duplicate", "clusterSelector": fields{"tier": "prod"}}},
	{"clusters with the label tier=prdo, a typing error: no cluster has it", fields{"schedulingMode": "Duplicate", "clusterSelector": fields{"tier": "prdo"}}},
	{"the clusters eu-1 and us-1 by name", fields{"schedulingMode": "Duplicate", "placement": []any{fields{"cluster": "eu-1"}, fields{"cluster": "us-1"}}}},
	{"the clusters eu-1, eu-2 and ap-1 by name", fields{"schedulingMode": "Duplicate", "placement": []any{fields{"cluster": "eu-1"},
		fields{"cluster": "eu-2"}, fields{"cluster": "ap-1"}}}},
	{"the cluster us-1 by name", fields{"schedulingMode": "Duplicate", "placement": []any{fields{"cluster": "us-1"}}}},
	{"one cluster", fields{"schedulingMode": "Duplicate", "maxClusters": 1}},
	{"no cluster", fields{"schedulingMode": "Duplicate", "maxClusters": 0}},
	{"regions eu and ap", fields{"schedulingMode": "Duplicate", "clusterAffinity": []any{fields{"matchExpressions": []any{fields{"key": "region",
		"operator": "In", "values": []any{"eu", "ap"}}}}}}},
	{"all clusters, also those in maintenance", fields{"schedulingMode": "Duplicate", "tolerations": []any{fields{"key": "maintenance",
		"operator": "Exists"}}}},
	{"all clusters, with the replicas divided", fields{"schedulingMode": "Divide"}},
	{"eu-1 and us-1, with the replicas divided 3 to 1", fields{"schedulingMode": "Divide", "replicasStrategy": "Spread",
		"placement": []any{fields{"cluster": "eu-1", "preferences": fields{"weight": 3}}, fields{"cluster": "us-1", "preferences": fields{"weight": 1}}}}},
	{"all clusters, with the replicas divided: at most two on eu-1", fields{"schedulingMode": "Divide", "replicasStrategy": "Binpack", "placement": []any{
		fields{"cluster": "eu-1", "preferences": fields{"maxReplicas": 2}}, fields{"cluster": "us-1",
			"preferences": fields{"minReplicas": 1}}, fields{"cluster": "ap-1"},
	}}},
	{"clusters with the label tier=prod, once and for all", fields{"schedulingMode": "Duplicate", "clusterSelector": fields{"tier": "prod"},
		"reschedulePolicy": fields{"disableRescheduling": true}}},
	{"clusters with the label tier=prod, anew when clusters join",
		fields{"schedulingMode": "Duplicate", "clusterSelector": fields{"tier": "prod"},
			"reschedulePolicy": fields{"rescheduleWhen": fields{"policyContentChanged": true, "clusterJoined": true}}}},
	{"all clusters, without what objects refer to", fields{"schedulingMode": "Duplicate", "disableFollowerScheduling": true}},
}

// overrideSpecs are the possible specs of an OverridePolicy.
//
//nolint:gochecknoglobals // It is a constant.
var overrideSpecs = []variant{
	{"another image tag on us-1", rules(rule(fields{"clusters": []any{"us-1"}}, "image", fields{"operations": []any{fields{"imageComponent": "Tag",
		"operator": "overwrite", "value": "us"}}}))},
	{"another registry in region eu", rules(rule(fields{"clusterSelector": fields{"region": "eu"}}, "image",
		fields{"operations": []any{fields{"imageComponent": "Registry", "value": "eu.registry.sim"}}}))},
	{"an annotation on all clusters", rules(rule(nil, "annotations", fields{"operator": "addIfAbsent", "value": fields{"team": "a"}}))},
	{"a label on ap-1", rules(rule(fields{"clusters": []any{"ap-1"}}, "labels", fields{"operator": "addIfAbsent", "value": fields{"zone": "ap"}}))},
	{"five replicas on ap-1, which only Deployments have", rules(rule(fields{"clusters": []any{"ap-1"}}, "jsonpatch", fields{"operator": "replace",
		"path": "/spec/replicas", "value": 5}))},
	{"a key of the data on eu-1", rules(rule(fields{"clusters": []any{"eu-1"}}, "jsonpatch", fields{"operator": "add", "path": "/data/extra",
		"value": "ZXU="}))},
	{"a variable in region us", rules(rule(fields{"clusterSelector": fields{"region": "us"}}, "envs", fields{"containerName": "web",
		"operator": "overwrite", "value": []any{fields{"name": "LEVEL", "value": "us"}}}))},
	{"the arguments of the container on clusters with tier=prod",
		rules(rule(fields{"clusterSelector": fields{"tier": "prod"}}, "args", fields{"containerName": "web", "operator": "append", "value": []any{"--fast"}}))},
	{"another Secret for the pods on us-1", rules(rule(fields{"clusters": []any{"us-1"}}, "jsonpatch", fields{"operator": "add",
		"path": "/spec/template/spec/volumes", "value": []any{fields{"name": "more", "configMap": fields{"name": "page-1"}}}}))},
	{"nothing, as its cluster is not there", rules(rule(fields{"clusters": []any{"no-1"}}, "labels", fields{"value": fields{"zone": "no"}}))},
	{"no rules", fields{}},
}

func rules(all ...any) fields { return fields{"overrideRules": all} }

func rule(target fields, what string, overrider fields) fields {
	r := fields{"overriders": fields{what: []any{overrider}}}
	if target != nil {
		r["targetClusters"] = target
	}
	return r
}

// rolloutSpecs are the possible specs of a RolloutPolicy.
//
//nolint:gochecknoglobals // It is a constant.
var rolloutSpecs = []variant{
	{"first eu-1 for 30 seconds, then the others", fields{"waves": []any{wave("canary", "eu-1", fields{"minReadySeconds": 30})}}},
	{"first eu-1, and the others when somebody approves", fields{"waves": []any{wave("canary", "eu-1", nil), fields{"name": "rest", "strategy": "Manual"}}}},
	{"each cluster alone, back to the former content if one fails", fields{
		"waves": []any{fields{"name": "all", "maxConcurrent": 1,
			"minReadySeconds": 10}}, "health": fields{"timeoutSeconds": 60}, "onFailure": fields{"action": "Revert"},
	}},
	{"us-1, ap-1, then eu-1; halt at the second failure", fields{
		"waves":  []any{wave("first", "us-1", nil), wave("second", "ap-1", fields{"minReadySeconds": 5}), fields{"name": "last"}},
		"health": fields{"timeoutSeconds": 90}, "onFailure": fields{"maxFailures": 1, "action": "Halt"},
	}},
	{"tier=test for five minutes, then the others; back if one fails", fields{
		"waves": []any{fields{"name": "test", "targetClusters": fields{"clusterSelector": fields{"tier": "test"}}, "minReadySeconds": 300},
			fields{"name": "prod"}},
		"health": fields{"timeoutSeconds": 120}, "onFailure": fields{"action": "Revert"},
	}},
	{"one cluster of each region at a time", fields{"budgets": []any{fields{"label": "region", "maxUnavailable": 1}},
		"waves": []any{fields{"name": "all", "minReadySeconds": 15}}}},
	{"an approval for changes of more than one cluster", fields{"maxChange": fields{"clusters": 1}}},
	{"clusters of which the copy has the label version", fields{
		"waves":  []any{wave("canary", "ap-1", nil), fields{"name": "rest", "maxConcurrent": "50%"}},
		"health": fields{"timeoutSeconds": 45, "cel": "'version' in object.metadata.labels"}, "onFailure": fields{"action": "Revert"},
	}},
	{"all clusters at once", fields{}},
	{"a condition of health with a typing error", fields{"health": fields{"cel": misspelt}}},
}

// misspelt is an invalid condition. A policy with this condition lets no change through.
const misspelt = "objekt.metadata.generation == 1"

// floorSpecs are the possible specs of a ClusterRolloutPolicy.
//
//nolint:gochecknoglobals // It is a constant.
var floorSpecs = slices.Concat(rolloutSpecs, []variant{
	{"first us-1, then the others; objects may obey a policy of their own within that", fields{
		"allowNarrower": true, "waves": []any{wave("canary", "us-1", nil), fields{"name": "rest"}}, "maxChange": fields{"clusters": 2},
	}},
	{"each cluster alone; objects may obey a policy of their own within that", fields{
		"allowNarrower": true, "waves": []any{fields{"name": "all", "maxConcurrent": 1}},
	}},
	{"an approval before each change; objects may obey a policy of their own within that", fields{
		"allowNarrower": true, "waves": []any{fields{"name": "all", "strategy": "Manual"}},
	}},
})

func wave(name, cluster string, more fields) fields {
	v := fields{"name": name, "targetClusters": fields{"clusters": []any{cluster}}}
	maps.Copy(v, more)
	return v
}
