package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// parts are the parts of the chart, with the name of the objects of each.
var parts = map[string]string{"propagation": "refract", "injection": "refract-injection", "conversion": "refract-conversion"}

// The paths in a Deployment of its pod spec and of its container.
const (
	pods      = "spec/template/spec"
	container = pods + "/containers/0"
)

// shown is the effect of a value on an object.
type shown struct {
	value string // The value, as YAML.
	with  string // Other values that the effect requires, as YAML.
	in    string // The kind of the object, with its name unless that is the name of a part.
	at    string // The field, by its path; empty for the object itself.
	want  string // The expected content, as YAML, with APPVERSION for the version of the chart; empty for a missing field or object.
}

// forParts are the values that hold for all parts, or for one part if they are set below its key.
var forParts = map[string]shown{
	"image.registry":   {value: "registry.example.com/team", in: "Deployment", at: container + "/image", want: "registry.example.com/team/refract:APPVERSION"},
	"image.repository": {value: "mirror/refract", in: "Deployment", at: container + "/image", want: "registry.example.com/mirror/refract:APPVERSION"},
	"image.tag":        {value: "v7", in: "Deployment", at: container + "/image", want: "registry.example.com/refract:v7"},
	"image.digest":     {value: digest, in: "Deployment", at: container + "/image", want: "registry.example.com/refract@" + digest},
	"image.pullPolicy": {value: "Always", in: "Deployment", at: container + "/imagePullPolicy", want: "Always"},
	"imagePullSecrets": {value: "[{name: registry}]", in: "Deployment", at: pods + "/imagePullSecrets", want: "[{name: registry}]"},
	"replicaCount":     {value: "0", in: "Deployment", at: "spec/replicas", want: "0"},
	"resources": {
		value: "{limits: {cpu: 2, ephemeral-storage: 1Gi}}",
		in:    "Deployment", at: container + "/resources/limits/ephemeral-storage", want: "1Gi",
	},
	"nodeSelector": {value: "{disk: ssd}", in: "Deployment", at: pods + "/nodeSelector", want: "{disk: ssd}"},
	"tolerations": {
		value: "[{key: a, operator: Exists, tolerationSeconds: 3000000}]",
		in:    "Deployment", at: pods + "/tolerations", want: "[{key: a, operator: Exists, tolerationSeconds: 3000000}]",
	},
	"affinity":            {value: "{nodeAffinity: " + ssd + "}", in: "Deployment", at: pods + "/affinity/nodeAffinity", want: ssd},
	"priorityClassName":   {value: "high", in: "Deployment", at: pods + "/priorityClassName", want: "high"},
	"serviceAccount":      {value: "{annotations: {example.com/role: a}}", in: "ServiceAccount", at: "metadata/annotations", want: "{example.com/role: a}"},
	"podDisruptionBudget": {value: "{maxUnavailable: 0}", in: "PodDisruptionBudget", at: "spec/maxUnavailable", want: "0"},

	"resources.requests.cpu":    {value: "250m", in: "Deployment", at: container + "/resources/requests/cpu", want: "250m"},
	"resources.requests.memory": {value: "333Mi", in: "Deployment", at: container + "/resources/requests/memory", want: "333Mi"},
	"resources.limits.memory":   {value: "1.5Gi", in: "Deployment", at: container + "/resources/limits/memory", want: "1.5Gi"},
	"topologySpreadConstraints": {
		value: "[{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]",
		in:    "Deployment", at: pods + "/topologySpreadConstraints/0/maxSkew", want: "2",
	},
	"podDisruptionBudget.enabled":        {value: "false", in: "PodDisruptionBudget"},
	"podDisruptionBudget.maxUnavailable": {value: "50%", in: "PodDisruptionBudget", at: "spec/maxUnavailable", want: "50%"},
	"serviceAccount.annotations":         {value: "{example.com/role: b}", in: "ServiceAccount", at: "metadata/annotations", want: "{example.com/role: b}"},
	"serviceAccount.automount":           {value: "false", in: "ServiceAccount", at: "automountServiceAccountToken", want: "false"},
	"volumes":                            {value: "[{name: a, emptyDir: {}}]", in: "Deployment", at: pods + "/volumes", want: "[{name: a, emptyDir: {}}]"},
	"volumeMounts": {
		value: "[{name: a, mountPath: /a, readOnly: true}]",
		in:    "Deployment", at: container + "/volumeMounts", want: "[{name: a, mountPath: /a, readOnly: true}]",
	},
	"extraArgs": {value: "[--log-format=json]", in: "Deployment", at: container + "/args/-1", want: "--log-format=json"},
}

// others are all other values.
var others = map[string]shown{
	"propagation.enabled": {value: "false", in: "Deployment/refract"},
	"propagation.types": {
		value: "[{apiGroups: [apps], resources: [deployments]}, {apiGroups: [''], resources: [services, configmaps]}]",
		in:    "ClusterRole/refract-hub-types", at: "rules", want: "[{apiGroups: [apps], resources: [deployments], verbs: [list, watch]}, " +
			"{apiGroups: [''], resources: [services, configmaps], verbs: [list, watch]}]",
	},
	"propagation.inventories.clusterProfiles": {
		value: "[fleet, lab]", in: "Deployment/refract", at: container + "/args/1", want: "--cluster-profiles=fleet,lab",
	},
	"propagation.inventories.clusterAPI": {value: "[capi]", in: "Deployment/refract", at: container + "/args/1", want: "--cluster-api=capi"},
	"injection.enabled":                  {value: "true", in: "Deployment/refract-injection", at: "spec/replicas", want: "2"},
	"conversion.enabled":                 {value: "true", in: "Deployment/refract-conversion", at: "spec/replicas", want: "2"},
	"users.enabled":                      {value: "false", in: "ClusterRole/refract-view"},
	"member.enabled":                     {value: "true", in: "ServiceAccount/refract-member", at: "metadata/namespace", want: systemNamespace},
	"createNamespace": {
		value: "true",
		in:    "Namespace/" + systemNamespace, at: "metadata/labels", want: "{pod-security.kubernetes.io/enforce: restricted}",
	},

	"metrics.serviceMonitor.enabled": {value: "true", in: "ServiceMonitor/refract", at: "spec/endpoints", want: "[{port: metrics}]"},
	"metrics.serviceMonitor.labels": {
		value: "{release: prometheus}", with: "metrics: {serviceMonitor: {enabled: true}}",
		in: "ServiceMonitor/refract", at: "metadata/labels/release", want: "prometheus",
	},
	"metrics.prometheusRule.enabled": {value: "true", in: "PrometheusRule/refract", at: "spec/groups/1/name", want: "refract-propagation"},
	"metrics.prometheusRule.labels": {
		value: "{release: prometheus}", with: "metrics: {prometheusRule: {enabled: true}}",
		in: "PrometheusRule/refract", at: "metadata/labels/release", want: "prometheus",
	},
	"metrics.dashboard.enabled": {value: "true", in: "ConfigMap/refract-dashboard", at: "metadata/labels/grafana_dashboard", want: `"1"`},
	"metrics.dashboard.labels": {
		value: `{grafana_dashboard: "yes"}`, with: "metrics: {dashboard: {enabled: true}}",
		in: "ConfigMap/refract-dashboard", at: "metadata/labels/grafana_dashboard", want: `"yes"`,
	},
}

const (
	digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	ssd    = "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]}}"
	allOn  = "{injection: {enabled: true}, conversion: {enabled: true}}"
)

// TestEachValueIsTested: each value that values.yaml documents has a row in the tables above, and one in the README.
func TestEachValueIsTested(t *testing.T) {
	readme, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for path, value := range leaves(load(t, chartDir).Values) {
		part, rest, _ := strings.Cut(path, ".")
		_, own := others[path]
		if _, isPart := parts[part]; !isPart || own {
			rest = path
		}
		tested := own
		for p := range forParts {
			tested = tested || rest == p || strings.HasPrefix(rest, p+".")
		}
		if !tested {
			t.Errorf("%s is in values.yaml, and no test looks where it shows: add it to the tables in values_test.go", path)
		}
		row := fmt.Sprintf("| `%s` | `%s` |", path, inline(t, value))
		if len(row) > 100 { // A long default is only in values.yaml.
			row = fmt.Sprintf("| `%s` |", path)
		}
		if !strings.Contains(string(readme), row) {
			t.Errorf("charts/refract/README.md has no row that begins with %s", row)
		}
	}
}

// TestReadme: the README's table has only existing values.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	known := leaves(load(t, chartDir).Values)
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllSubmatch(readme, -1) {
		if _, ok := known[string(row[1])]; !ok {
			t.Errorf("charts/refract/README.md has a row for %s, which values.yaml does not have", row[1])
		}
	}
}

// TestValues: each value has its effect, and a value of a part affects only that part.
func TestValues(t *testing.T) {
	c := load(t, chartDir)
	for path, s := range others {
		t.Run(path, func(t *testing.T) {
			check(t, rendered(t, c, valuesWith(t, s.with, path, s.value)), s, s.in)
		})
	}
	usual := rendered(t, c, parse(t, allOn))
	for path, s := range forParts {
		s.want = strings.ReplaceAll(s.want, "APPVERSION", c.Metadata.AppVersion)
		t.Run(path, func(t *testing.T) {
			all := rendered(t, c, valuesWith(t, allOn, path, s.value))
			for part, name := range parts {
				// A part that sets the value itself ignores the common value.
				if _, differs := at(c.Values, part+"."+path); !differs {
					check(t, all, s, s.in+"/"+name)
				}
				own := rendered(t, c, valuesWith(t, allOn, part+"."+path, s.value))
				check(t, own, s, s.in+"/"+name)
				for key, o := range usual {
					if o.GetName() == name {
						continue
					}
					if diff := cmp.Diff(o.Object, own[key].Object); diff != "" {
						t.Errorf("%s is not of %s, and changed: -without its value, +with it:\n%s", key, part, diff)
					}
				}
			}
		})
	}
}

// rendered returns the objects that the chart renders with the values.
func rendered(t *testing.T, c *chart.Chart, values map[string]any) map[string]object {
	t.Helper()
	all, _, err := render(t, c, values, "")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// check compares one field of one object.
func check(t *testing.T, all map[string]object, s shown, key string) {
	t.Helper()
	o, ok := all[key]
	if s.at == "" {
		if ok != (s.want != "") {
			t.Errorf("%s: want it to be there: %t, is it: %t", key, s.want != "", ok)
		}
		return
	}
	if !ok {
		t.Fatalf("%s is not there", key)
	}
	var want any
	if err := yaml.Unmarshal([]byte(s.want), &want); err != nil {
		t.Fatal(err)
	}
	got, _ := at(o.Object, strings.ReplaceAll(strings.ReplaceAll(s.at, ".", "\x00"), "/", "."))
	if diff := cmp.Diff(inline(t, want), inline(t, got)); diff != "" {
		t.Errorf("%s: %s: -want, +got:\n%s", key, s.at, diff)
	}
}

// TestMemory: GOMEMLIMIT is nine tenths of the memory limit, and not set without a limit.
func TestMemory(t *testing.T) {
	for limit, want := range map[string]string{
		"10Mi": "9MiB", "512Mi": "460MiB", "1Gi": "921MiB", "1.5Gi": "1382MiB", "600M": "514MiB", "2G": "1716MiB", "null": "",
	} {
		all, _, err := render(t, load(t, chartDir), valuesWith(t, "", "resources.limits.memory", limit), "")
		if err != nil {
			t.Errorf("%s: %v", limit, err)
			continue
		}
		got, _ := at(all["Deployment/refract"].Object, "spec.template.spec.containers.0.env.2.value")
		if want == "" && got == nil {
			continue
		}
		if got != want {
			t.Errorf("%s: want GOMEMLIMIT to be %q, got %v", limit, want, got)
		}
	}
}

// TestDetails: settings for all parts and settings for one part are merged, and computed defaults are those of the
// part.
func TestDetails(t *testing.T) {
	for name, c := range map[string]struct{ values, key, at, want string }{
		"arguments for all come first, so that those of the part win": {
			"{extraArgs: [--a, --b], injection: {enabled: true, extraArgs: [--c]}}",
			"Deployment/refract-injection", container + "/args",
			"[run, --injection, '--trusted-authors=system:serviceaccount:kube-admiral-system:refract-member', " +
				"--webhook-service=kube-admiral-system/refract-injection, --system-namespace=kube-admiral-system, --identity=$(POD_NAME), --a, --b, --c]",
		},
		"a part is switched off what is on for all": {
			"{podDisruptionBudget: {enabled: true}, propagation: {podDisruptionBudget: {enabled: false}}}", "PodDisruptionBudget/refract", "", "",
		},
		"tables are merged": {
			"{nodeSelector: {a: b}, propagation: {nodeSelector: {c: d}}}", "Deployment/refract", pods + "/nodeSelector", "{a: b, c: d}",
		},
		"affinity for all leaves the one of a part": {
			"{conversion: {enabled: true}, affinity: {nodeAffinity: " + ssd + "}}", "Deployment/refract-conversion",
			pods + "/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/weight", "100",
		},
		"pods are spread against those of their own": {
			"{injection: {enabled: true}}", "Deployment/refract-injection", pods + "/topologySpreadConstraints/0/labelSelector/matchLabels",
			"{app.kubernetes.io/name: refract-injection}",
		},
		"a selector that is given stays": {
			"{topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, " +
				"labelSelector: {matchLabels: {x: z}}}]}",
			"Deployment/refract", pods + "/topologySpreadConstraints/0/labelSelector/matchLabels", "{x: z}",
		},
		"refract has its token though its account gives none": {
			"{serviceAccount: {automount: false}}", "Deployment/refract", pods + "/automountServiceAccountToken", "true",
		},
		"a number may be a share": {
			"{podDisruptionBudget: {maxUnavailable: 25%}}", "PodDisruptionBudget/refract", "spec/maxUnavailable", "25%",
		},
		"a hub has the roles for the policies of members": {
			"{}", "ClusterRole/refract-injection-edit", "roleRef", "null",
		},
		"a member that runs nothing has the namespace without a standard": {
			"{createNamespace: true, propagation: {enabled: false}, member: {enabled: true}}", "Namespace/" + systemNamespace, "metadata/labels", "null",
		},
		"alerts of what does not run are left out": {
			"{propagation: {enabled: false}, conversion: {enabled: true}, metrics: {prometheusRule: {enabled: true}}}",
			"PrometheusRule/refract", "spec/groups/1/name", "refract-conversion",
		},
		"nothing runs, nothing is watched": {
			"{propagation: {enabled: false}, metrics: {prometheusRule: {enabled: true}}}", "PrometheusRule/refract", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, rendered(t, load(t, chartDir), parse(t, c.values)), shown{at: c.at, want: c.want}, c.key)
		})
	}
}

// TestNamedSecrets: the account of the hub reads Secrets of the system namespace only by name, unless Refract creates
// them for an inventory. It has no other right to Secrets of the hub, except for propagated types.
func TestNamedSecrets(t *testing.T) {
	const narrow = "propagation: {types: [{apiGroups: [apps], resources: [deployments]}]%s}"
	for name, c := range map[string]struct {
		values string
		want   []string
	}{
		"default": {"{}", nil},
		"narrow":  {fmt.Sprintf(narrow, ""), nil},
		"profiles, of every type": {
			"propagation: {inventories: {clusterProfiles: [fleet]}}", []string{"Role/refract-hub: list,watch,patch"},
		},
		"profiles": {
			fmt.Sprintf(narrow, ", inventories: {clusterProfiles: [fleet]}"), []string{"Role/refract-hub: list,watch,patch"},
		},
		"Cluster API": {
			fmt.Sprintf(narrow, ", inventories: {clusterAPI: [capi]}"),
			[]string{"Role/refract-hub-cluster-api-capi: list,watch", "Role/refract-hub: list,watch,patch"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for key, o := range rendered(t, load(t, chartDir), parse(t, c.values)) {
				if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
					continue
				}
				role := &rbacv1.ClusterRole{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
					t.Fatal(err)
				}
				for _, r := range role.Rules {
					if slices.Contains(r.Resources, "secrets") && len(r.ResourceNames) == 0 && !slices.Equal(r.Verbs, []string{"create"}) {
						got = append(got, key+": "+strings.Join(r.Verbs, ","))
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// TestMisspelt: the chart rejects unknown keys by name, at any depth and for each part. It also rejects invalid values.
func TestMisspelt(t *testing.T) {
	c := load(t, chartDir)
	refuse := func(t *testing.T, values map[string]any, naming string) {
		t.Helper()
		_, _, err := render(t, c, values, "")
		if err == nil || !strings.Contains(err.Error(), naming) {
			t.Errorf("%v: want an error that names %s, got %v", values, naming, err)
		}
	}
	free := []string{"nodeSelector", "annotations", "labels", "matchLabels"} // The user chooses their keys.
	var walk func(path string, table map[string]any)
	walk = func(path string, table map[string]any) {
		refuse(t, valuesWith(t, "", strings.TrimPrefix(path+".misspelt", "."), "1"), "misspelt")
		for key, value := range table {
			if below, ok := value.(map[string]any); ok && !slices.Contains(free, key) {
				walk(strings.TrimPrefix(path+"."+key, "."), below)
			}
		}
	}
	walk("", c.Values)
	for part := range parts {
		none := map[string]any{}
		walk(part, map[string]any{"image": none, "resources": map[string]any{"limits": none, "requests": none}, "serviceAccount": none, "podDisruptionBudget": none})
	}
	for text, naming := range nonsense {
		refuse(t, parse(t, text), naming)
	}
	if _, _, err := render(t, c, parse(t, "global: {imageRegistry: a}"), ""); err != nil {
		t.Errorf("Helm gives every chart globals that another depends on: %v", err)
	}
}

// nonsense are invalid values, each with the text that the error must contain.
var nonsense = map[string]string{
	"affinity: {nodeAfinity: {}}":             "nodeAfinity",
	"affinity: {podAffinity: {required: []}}": "required",
	"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {terms: []}}}": "terms",
	"tolerations: [{keys: a}]":                                                "keys",
	"topologySpreadConstraints: [{maxSkew: 1, topologyKey: a}]":               "whenUnsatisfiable",
	"imagePullSecrets: [registry]":                                            "imagePullSecrets",
	"resources: {limits: {memory: 1gb}}":                                      "memory",
	"resources: {limits: {memory: 1Mi}}":                                      "memory",
	"resources: {limits: {memory: 1073741824}}":                               "memory",
	"resources: {limit: {memory: 1Gi}}":                                       "limit",
	"injection: {resources: {limits: {memory: lots}}}":                        "memory",
	"image: {digest: latest}":                                                 "digest",
	"image: {tag: 1.0}":                                                       "tag",
	"image: {pullPolicy: always}":                                             "pullPolicy",
	"image: {repository: null}":                                               "repository",
	"replicaCount: null":                                                      "replicaCount",
	"replicaCount: two":                                                       "replicaCount",
	"conversion: {replicaCount: null}":                                        "replicaCount",
	"podDisruptionBudget: {maxUnavailable: half}":                             "maxUnavailable",
	"podDisruptionBudget: null":                                               "podDisruptionBudget",
	"serviceAccount: {automount: null}":                                       "automount",
	"serviceAccount: {annotations: {a: 1}}":                                   "annotations",
	"extraArgs: [log-format=json]":                                            "extraArgs",
	"extraArgs: --log-format=json":                                            "extraArgs",
	"propagation: {enabled: 'yes'}":                                           "enabled",
	"propagation: {types: []}":                                                "types",
	"propagation: {types: [deployments.apps]}":                                "types",
	"propagation: {types: [{apiGroups: [apps]}]}":                             "resources",
	"propagation: {types: [{apiGroups: [''], resources: [pods/exec]}]}":       "resources",
	"propagation: {types: [{apiGroups: [''], resources: [pods], verbs: []}]}": "verbs",
	"propagation: null":                                                       "propagation",
	"injection: {createNamespace: true}":                                      "createNamespace",
	"metrics: {serviceMonitor: {labels: {a: true}}}":                          "labels",
	"nodeSelector: {a: true}":                                                 "nodeSelector",
}

// leaves returns the values that are not tables, and empty tables, by their paths.
func leaves(values map[string]any) map[string]any {
	all := map[string]any{}
	for key, value := range values {
		table, ok := value.(map[string]any)
		if !ok || len(table) == 0 {
			all[key] = value
			continue
		}
		for path, leaf := range leaves(table) {
			all[key+"."+path] = leaf
		}
	}
	return all
}

// at returns a value by its path. In a list, a segment is an index, counted from the end if it is negative. A zero byte
// stands for a dot in a key.
func at(in any, path string) (any, bool) {
	for key := range strings.SplitSeq(path, ".") {
		switch of := in.(type) {
		case map[string]any:
			var ok bool
			if in, ok = of[strings.ReplaceAll(key, "\x00", ".")]; !ok {
				return nil, false
			}
		case []any:
			var i int
			if _, err := fmt.Sscanf(key, "%d", &i); err != nil {
				return nil, false
			}
			if i < 0 {
				i += len(of)
			}
			if i < 0 || i >= len(of) {
				return nil, false
			}
			in = of[i]
		default:
			return nil, false
		}
	}
	return in, true
}

// valuesWith returns the values of a YAML text with one more value at a path.
func valuesWith(t *testing.T, text, path, value string) map[string]any {
	t.Helper()
	values := parse(t, text)
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		t.Fatal(err)
	}
	table, keys := values, strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		below, ok := table[key].(map[string]any)
		if !ok {
			below = map[string]any{}
			table[key] = below
		}
		table = below
	}
	table[keys[len(keys)-1]] = v
	return runtime.DeepCopyJSON(values)
}

// inline returns a value as JSON in one line, so that numbers of different types are equal.
func inline(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	text, err = yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
