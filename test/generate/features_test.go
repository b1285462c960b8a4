package generate

import (
	"maps"
	"slices"

	"refract.dev/tree"
)

// features counts the features that the documents of fleets use.
type features map[string]int

func (f features) missing(of []string) []string {
	return slices.DeleteFunc(slices.Clone(of), func(name string) bool { return f[name] > 0 })
}

func (f features) add(d Document) {
	f[kindOf(d)]++
	spec := member(d, "spec")
	if isPropagation(kindOf(d)) {
		for key := range spec {
			f["placement "+key]++
		}
		f["mode "+stringAt(spec, "schedulingMode")]++
	}
	for _, rule := range items(spec, "overrideRules") {
		target, ok := rule["targetClusters"]
		if !ok {
			f["target absent"]++
		}
		f.addTarget(target)
		for name := range member(rule, "overriders") {
			for _, item := range items(member(rule, "overriders"), name) {
				f.addItem(name, item)
			}
		}
	}
}

func (f features) addTarget(target any) {
	m, _ := target.(Document)
	for key := range m {
		f["target "+key]++
	}
	for _, term := range items(m, "clusterAffinity") {
		if len(term) == 0 {
			f["term empty"]++
		}
		for _, r := range slices.Concat(items(term, "matchExpressions"), items(term, "matchFields")) {
			f["expression "+stringAt(r, "operator")]++
		}
		for key := range term {
			f["term "+key]++
		}
	}
}

func (f features) addItem(overrider string, item Document) {
	f[overrider+" "+stringAt(item, "operator")]++
	for _, op := range items(item, "operations") {
		f["image "+stringAt(op, "imageComponent")+" "+stringAt(op, "operator")]++
	}
	for _, key := range slices.Sorted(maps.Keys(item)) {
		f[overrider+" with "+key]++
	}
	if overrider == "jsonpatch" {
		for _, key := range tree.MustParse(stringAt(item, "path")).Keys() {
			f["segment "+key]++
		}
		f["value "+tree.TypeName(item["value"])]++
		if n, ok := item["value"].(int64); ok && (n > 1<<53 || n < -1<<53) {
			f["value beyond 2^53"]++
		}
	}
}

// wanted are the features that must appear in at least one fleet.
var wanted = []string{
	"FederatedCluster", "OverridePolicy", "ClusterOverridePolicy", "PropagationPolicy", "ClusterPropagationPolicy",
	"Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod", "ConfigMap", "Secret", "Service",
	"Database", "CustomResourceDefinition", "ClusterRole", "Namespace",

	"target absent", "target clusters", "target clusterSelector", "target clusterAffinity",
	"term matchExpressions", "term matchFields", "term empty",
	"expression In", "expression NotIn", "expression Exists", "expression DoesNotExist", "expression Gt", "expression Lt",

	"placement clusterSelector", "placement clusterAffinity", "placement maxClusters", "placement placement", "placement tolerations", //nolint:dupword // The field has the name.
	"mode Duplicate", "mode Divide",
	"placement schedulingProfile", "placement replicasStrategy", "placement autoMigration", "placement reschedulePolicy", "placement disableFollowerScheduling",

	"image with imagePath", "image with containerNames",
	"image Registry ", "image Registry overwrite", "image Registry addIfAbsent", "image Registry delete",
	"image Repository ", "image Repository overwrite", "image Repository delete",
	"image Tag ", "image Tag overwrite", "image Tag addIfAbsent", "image Tag delete",
	"image Digest ", "image Digest overwrite", "image Digest addIfAbsent", "image Digest delete",
	"command ", "command append", "command overwrite", "command delete", "args ", "args append", "args overwrite", "args delete",
	"envs ", "envs addIfAbsent", "envs overwrite", "envs delete",
	"annotations ", "annotations addIfAbsent", "annotations overwrite", "annotations delete",
	"labels ", "labels addIfAbsent", "labels overwrite", "labels delete",
	"jsonpatch ", "jsonpatch add", "jsonpatch remove", "jsonpatch replace",
	"segment -", "segment -1", "segment 0", "segment io/threads", "segment a~b", "segment apiVersion",
	"value an object", "value an array", "value a string", "value a number", "value a boolean", "value beyond 2^53",

	"error of image", "error of envs", "error of annotations", "error of labels", "error of jsonpatch",
	"warning of image", "warning of command", "warning of args", "warning of envs", "warning of annotations", "warning of labels", "warning of jsonpatch",
}
