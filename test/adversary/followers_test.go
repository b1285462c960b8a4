package adversary

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workload is a Deployment that the labels and annotations are put into, and whose
// container has variables from these Secrets.
func workload(labels, annotations string, secrets ...string) string {
	from := make([]string, len(secrets))
	for i, s := range secrets {
		from[i] = "{secretRef: {name: " + s + "}}"
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {%s}, annotations: {%s}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: i, envFrom: [%s]}]
`, labels, annotations, strings.Join(from, ", "))
}

const (
	labelled = "kubeadmiral.io/propagation-policy-name: everywhere"
	opted    = `kubeadmiral.io/disable-following: "true"`
)

// TestFollowersNeedTheRight: what newly follows must be what the writer may get.
func TestFollowersNeedTheRight(t *testing.T) {
	t.Parallel()
	ns, user := namespace(t)
	cases := map[string]struct {
		reason string
		before string // What an administrator has written.
		after  string // What the user writes.
		want   string // What the refusal says; empty: it is not refused.
	}{
		"Theirs":       {"A Secret that the user may not get.", "", workload(labelled, "", "theirs"), "Secret/theirs would follow to member clusters, and " + user + " may not get it in namespace " + ns},
		"Mine":         {"The right to get it by name is enough.", "", workload(labelled, "", "mine", "mine-too"), ""},
		"NotLabelled":  {"What does not propagate is nobody's business.", "", workload("", "", "theirs"), ""},
		"OptedOut":     {"Nothing follows this one.", "", workload(labelled, opted, "theirs"), ""},
		"OptedOutElse": {"Any other value means nothing.", "", workload(labelled, `kubeadmiral.io/disable-following: "yes"`, "theirs"), "Secret/theirs"},
		"ClusterLabel": {"The other label propagates, too.", "", workload("kubeadmiral.io/cluster-propagation-policy-name: x", "", "theirs"), "Secret/theirs"},
		"BothLabels":   {"As do both.", "", workload(labelled+", kubeadmiral.io/cluster-propagation-policy-name: x", "", "theirs"), "Secret/theirs"},
		"WasThere": {
			"What followed before goes on to: others may edit the rest.",
			workload(labelled, "", "theirs"), workload(labelled, "note: x", "theirs"), "",
		},
		"OneMore": {
			"Only what is new is asked for, and refused.",
			workload(labelled, "", "theirs"), workload(labelled, "", "theirs", "others"), "Secret/others",
		},
		"OneLess": {"To drop one is free.", workload(labelled, "", "theirs", "others"), workload(labelled, "", "others"), ""},
		"NewLabel": {
			"With the label, all that it refers to is new.",
			workload("", "", "theirs"), workload(labelled, "", "theirs"), "Secret/theirs",
		},
		"OtherPolicy": {
			"Another policy may send it elsewhere.",
			workload(labelled, "", "theirs"), workload("kubeadmiral.io/propagation-policy-name: first", "", "theirs"), "Secret/theirs",
		},
		"ClusterPolicyBesides": {
			"So may a second label, when the first goes.",
			workload(labelled, "", "theirs"), workload("kubeadmiral.io/cluster-propagation-policy-name: everywhere", "", "theirs"), "Secret/theirs",
		},
		"NoLabelAnyMore": {"What stops propagating is free.", workload(labelled, "", "theirs"), workload("", "", "theirs"), ""},
		"OptedInAgain": {
			"What did not follow before is new.",
			workload(labelled, opted, "theirs"), workload(labelled, "", "theirs"), "Secret/theirs",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer remove(t, "hub", "deployment", ns, "web")
			expect(t, tc.reason, tc.want, written(t, user, ns, tc.before, tc.after))
		})
	}
}

// written has an administrator create what is before, if it is not empty, and the user
// what is after, in its place. It returns what the API server says to the user.
func written(t *testing.T, user, ns, before, after string) error {
	t.Helper()
	if before == "" {
		return create(t, as(t, user), ns, after)
	}
	given(t, "hub", ns, before)
	return replace(t, as(t, user), ns, after)
}

// expect wants a request of a user to be refused with the text, or not at all if that is
// empty.
func expect(t *testing.T, reason, want string, err error) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s\nwant no refusal, got: %v", reason, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s\nwant refusal %q, got: %v", reason, want, err)
	}
}

// TestNamedFollowersNeedTheRight: so must what is named in the annotation.
func TestNamedFollowersNeedTheRight(t *testing.T) {
	t.Parallel()
	ns, user := namespace(t)
	named := func(followers string) string {
		return fmt.Sprintf("kubeadmiral.io/followers: '%s'", followers)
	}
	many := func(n int, name string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"kind":"ConfigMap","name":"`+name+`"},`, n), ",") + "]"
	}
	cases := map[string]struct{ reason, before, after, want string }{
		"Mine":          {"The right by name is enough.", "", named(`[{"group":"","kind":"Secret","name":"mine"}]`), ""},
		"Theirs":        {"Somebody else's.", "", named(`[{"kind":"Secret","name":"mine"}, {"name" : "theirs", "kind": "Secret"}]`), "Secret/theirs would follow"},
		"OfAGroup":      {"Objects of every kind are asked for.", "", named(`[{"group":"networking.k8s.io","kind":"Ingress","name":"theirs"}]`), "Ingress/theirs would follow"},
		"Empty":         {"None.", "", named(`[]`), ""},
		"OptedOut":      {"Nothing follows this one.", "", named(`[{"kind":"Secret","name":"theirs"}]`) + ", " + opted, ""},
		"Escaped":       {"An escape would hide what it says.", "", named(`[{"kind":"\u0053ecret","name":"theirs"}]`), "want a JSON list"},
		"Twice":         {"The last of two wins, and it is not known here.", "", named(`[{"kind":"ConfigMap","kind":"Secret","name":"theirs"}]`), "want a JSON list"},
		"AnyCase":       {"Go reads keys in any case.", "", named(`[{"Kind":"Secret","kind":"ConfigMap","name":"theirs"}]`), "want a JSON list"},
		"OtherMember":   {"What is not known is not passed.", "", named(`[{"kind":"Secret","name":"theirs","namespace":"x"}]`), "want a JSON list"},
		"NoJSON":        {"As is what cannot be read.", "", "kubeadmiral.io/followers: x", "want a JSON list"},
		"OtherKind":     {"A kind whose resource is not known cannot be asked for.", "", named(`[{"group":"rbac.authorization.k8s.io","kind":"RoleBinding","name":"theirs"}]`), "want one of the kinds"},
		"OtherGroup":    {"A kind is a kind of its group.", "", named(`[{"group":"example.com","kind":"ConfigMap","name":"theirs"}]`), "want one of the kinds"},
		"AsManyAsCanBe": {"There is room for 16 questions.", "", named(many(16, "a")), ""},
		"TooMany":       {"And no more.", "", named(many(17, "a")), "at most 16"},
		"WasThere": {
			"What followed before goes on to.",
			named(`[{"kind":"Secret","name":"theirs"}]`), named(`[{"kind":"Secret","name":"theirs"}]`) + ", note: x", "",
		},
		"OneMore": {
			"Only what is new is asked for.",
			named(`[{"kind":"Secret","name":"theirs"}]`), named(`[{"kind":"Secret","name":"theirs"},{"kind":"Secret","name":"others"}]`), "Secret/others would follow",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := func(annotations string) string {
				return "{apiVersion: v1, kind: ConfigMap, metadata: {name: web, labels: {" + labelled + "}, annotations: {" + annotations + "}}}"
			}
			defer remove(t, "hub", "configmap", ns, "web")
			before := ""
			if tc.before != "" {
				before = object(tc.before)
			}
			expect(t, tc.reason, tc.want, written(t, user, ns, before, object(tc.after)))
		})
	}
}

// TestLargeWorkloads: CEL counts what an expression costs. Workloads larger than
// most are still judged by what they refer to.
func TestLargeWorkloads(t *testing.T) {
	t.Parallel()
	ns, user := namespace(t)
	list := func(n int, format string) string {
		var items []string
		for i := range n {
			items = append(items, fmt.Sprintf(format, i))
		}
		return strings.Join(items, ", ")
	}
	spec := func(spec string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: large, labels: {" + labelled + "}}, spec: " + spec + "}"
	}
	variables := "containers: [" + list(10, "{name: c%d, image: i, env: ["+list(100, "{name: V%d, valueFrom: {secretKeyRef: {name: NAME, key: k}}}")+"]}") + "]"
	cases := map[string]struct{ reason, user, manifest, want string }{
		"ManyVariables": {
			"1,000 variables from one Secret are one reference.",
			user, spec("{" + strings.ReplaceAll(variables, "NAME", "mine") + "}"), "",
		},
		"ManyVariablesOfTheirs": {
			"Whatever their number.",
			user, spec("{" + strings.ReplaceAll(variables, "NAME", "theirs") + "}"), "Secret/theirs",
		},
		"ManyVolumes": {
			"200 volumes from ConfigMaps that the user may all get.",
			user, spec("{containers: [{name: c, image: i}], volumes: [" + list(200, "{name: v%d, configMap: {name: m%[1]d}}") + "]}"), "",
		},
		"ManySecrets": {
			"More than there is room to ask for by name.",
			user, spec("{containers: [{name: c, image: i}], volumes: [" + list(17, "{name: v%d, secret: {secretName: s%[1]d}}") + "]}"),
			"17 Secrets and ConfigMaps would newly follow",
		},
		"ManySecretsOfTheNamespace": {
			"Who may get all of the namespace need not be asked about each.",
			"system:admin", spec("{containers: [{name: c, image: i}], volumes: [" + list(200, "{name: v%d, secret: {secretName: s%[1]d}}") + "]}"), "",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var groups []string
			if tc.user == "system:admin" {
				groups = []string{"system:masters"}
			}
			expect(t, tc.reason, tc.want, create(t, as(t, tc.user, groups...), ns, tc.manifest, client.DryRunAll))
		})
	}
}

// TestEveryKindIsAskedFor: whatever kind has the pod template.
func TestEveryKindIsAskedFor(t *testing.T) {
	t.Parallel()
	ns, user := namespace(t)
	const pods = `{metadata: {labels: {app: web}}, spec: {restartPolicy: POLICY, containers: [{name: c, image: i}], volumes: [{name: v, secret: {secretName: theirs}}]}}`
	always, never := strings.Replace(pods, "POLICY", "Always", 1), strings.Replace(pods, "POLICY", "Never", 1)
	cases := map[string]string{
		"v1/PodTemplate":           "template: " + always,
		"v1/ReplicationController": "spec: {selector: {app: web}, template: " + always + "}",
		"apps/v1/DaemonSet":        "spec: {selector: {matchLabels: {app: web}}, template: " + always + "}",
		"apps/v1/Deployment":       "spec: {selector: {matchLabels: {app: web}}, template: " + always + "}",
		"apps/v1/ReplicaSet":       "spec: {selector: {matchLabels: {app: web}}, template: " + always + "}",
		"apps/v1/StatefulSet":      "spec: {serviceName: web, selector: {matchLabels: {app: web}}, template: " + always + "}",
		"batch/v1/Job":             "spec: {template: " + never + "}",
		"batch/v1/CronJob":         "spec: {schedule: '@daily', jobTemplate: {spec: {template: " + never + "}}}",
	}
	for kind, rest := range cases {
		t.Run(kind, func(t *testing.T) {
			at := strings.LastIndexByte(kind, '/')
			manifest := fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: web, labels: {%s}}, %s}", kind[:at], kind[at+1:], labelled, rest)
			expect(t, "An administrator may.", "", create(t, clients["hub"], ns, manifest, client.DryRunAll))
			expect(t, "It names a Secret that the user may not get.", "Secret/theirs would follow", create(t, as(t, user), ns, manifest, client.DryRunAll))
		})
	}
}

// TestOverridesNeedTheRight: what an override would have follow must be what who
// writes it may get, whether a workload names the override yet or not.
func TestOverridesNeedTheRight(t *testing.T) {
	t.Parallel()
	ns, user := namespace(t)
	policy := func(patch string) string {
		return "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: web}, spec: {overrideRules: [{overriders: {" + patch + "}}]}}"
	}
	cases := map[string]struct{ reason, policy, want string }{
		"Mine": {
			"A Secret that the user may get.",
			policy(`jsonpatch: [{path: /spec/template/spec/containers/0/envFrom, operator: add, value: [{secretRef: {name: mine}}]}]`), "",
		},
		"Theirs": {
			"A Secret that the user may not get.",
			policy(`jsonpatch: [{path: /spec/template/spec/containers/0/envFrom, operator: add, value: [{secretRef: {name: theirs}}]}]`), "theirs",
		},
		"NameAlone": {
			"The name alone is put into what is there.",
			policy(`jsonpatch: [{path: /spec/template/spec/volumes/0/secret/secretName, operator: replace, value: theirs}]`), "theirs",
		},
		"Variables": {
			"The overrider of variables reaches Secrets, too.",
			policy(`envs: [{containerName: c, operator: addIfAbsent, value: [{name: A, valueFrom: {secretKeyRef: {name: theirs, key: k}}}]}]`), "theirs",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer remove(t, "hub", "overridepolicy.core.kubeadmiral.io", ns, "web")
			expect(t, tc.reason, tc.want, create(t, as(t, user), ns, tc.policy))
		})
	}
}
