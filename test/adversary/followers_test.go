package adversary

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workload returns a Deployment with these labels and annotations, and variables from these Secrets.
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

// TestFollowersNeedTheRight: Refract propagates a Secret or ConfigMap together with a workload that refers to it. The
// API server accepts such a reference only from a user who may get the Secret or ConfigMap.
func TestFollowersNeedTheRight(t *testing.T) {
	t.Parallel()
	ns, user := namespace(t)
	cases := map[string]struct {
		reason string
		before string // The object before the user's write, created by an administrator; empty if the user creates the object.
		after  string // Written by the user.
		want   string // A text in the API server's error; empty if the write is accepted.
	}{
		"Theirs": {
			"The user may not get the Secret.",
			"", workload(labelled, "", "theirs"), "Secret/theirs would follow to member clusters, and " + user + " may not get it in namespace " + ns,
		},
		"Mine":         {"A right with a resource name is sufficient.", "", workload(labelled, "", "mine", "mine-too"), ""},
		"NotLabelled":  {"Objects without a policy label do not propagate, and need no check.", "", workload("", "", "theirs"), ""},
		"OptedOut":     {"The annotation turns followers off.", "", workload(labelled, opted, "theirs"), ""},
		"OptedOutElse": {"Any other value has no effect.", "", workload(labelled, `kubeadmiral.io/disable-following: "yes"`, "theirs"), "Secret/theirs"},
		"ClusterLabel": {
			"The other label propagates, too.",
			"", workload("kubeadmiral.io/cluster-propagation-policy-name: x", "", "theirs"), "Secret/theirs",
		},
		"BothLabels": {"So do both labels together.", "", workload(labelled+", kubeadmiral.io/cluster-propagation-policy-name: x", "", "theirs"), "Secret/theirs"},
		"WasThere": {
			"References from before need no right, so that other users may edit the rest.",
			workload(labelled, "", "theirs"), workload(labelled, "note: x", "theirs"), "",
		},
		"OneMore": {
			"Only the new reference needs the right.",
			workload(labelled, "", "theirs"), workload(labelled, "", "theirs", "others"), "Secret/others",
		},
		"OneLess": {"Removing a reference needs no right.", workload(labelled, "", "theirs", "others"), workload(labelled, "", "others"), ""},
		"NewLabel": {
			"With a new label, all references are new.",
			workload("", "", "theirs"), workload(labelled, "", "theirs"), "Secret/theirs",
		},
		"OtherPolicy": {
			"Another policy may place the object on other clusters.",
			workload(labelled, "", "theirs"), workload("kubeadmiral.io/propagation-policy-name: first", "", "theirs"), "Secret/theirs",
		},
		"ClusterPolicyBesides": {
			"So may the other label in place of the first.",
			workload(labelled, "", "theirs"), workload("kubeadmiral.io/cluster-propagation-policy-name: everywhere", "", "theirs"), "Secret/theirs",
		},
		"NoLabelAnyMore": {"Removing the label needs no right.", workload(labelled, "", "theirs"), workload("", "", "theirs"), ""},
		"OptedInAgain": {
			"References count as new if followers were turned off before.",
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

// written creates the first object as an administrator and replaces it with the second one as the user; if the first is
// empty, the user creates the second. It returns the API server's error for the user.
func written(t *testing.T, user, ns, before, after string) error {
	t.Helper()
	if before == "" {
		return create(t, as(t, user), ns, after)
	}
	given(t, "hub", ns, before)
	return replace(t, as(t, user), ns, after)
}

// expect fails the test unless the error contains the text want; an empty text means no error.
func expect(t *testing.T, reason, want string, err error) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s\nwant no refusal, got: %v", reason, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s\nwant refusal %q, got: %v", reason, want, err)
	}
}

// TestNamedFollowersNeedTheRight: the annotation kubeadmiral.io/followers may name only objects that the user may get.
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
		"Mine": {"A right with a resource name is sufficient.", "", named(`[{"group":"","kind":"Secret","name":"mine"}]`), ""},
		"Theirs": {
			"The user may not get the second Secret.",
			"", named(`[{"kind":"Secret","name":"mine"}, {"name" : "theirs", "kind": "Secret"}]`), "Secret/theirs would follow",
		},
		"OfAGroup": {
			"The check covers every kind.",
			"", named(`[{"group":"networking.k8s.io","kind":"Ingress","name":"theirs"}]`), "Ingress/theirs would follow",
		},
		"Empty":    {"An empty list.", "", named(`[]`), ""},
		"OptedOut": {"The annotation turns followers off.", "", named(`[{"kind":"Secret","name":"theirs"}]`) + ", " + opted, ""},
		"Escaped":  {"CEL does not decode an escaped name.", "", named(`[{"kind":"\u0053ecret","name":"theirs"}]`), "want a JSON list"},
		"Twice": {
			"The last of two equal keys wins in Go, and CEL cannot tell which it is.",
			"", named(`[{"kind":"ConfigMap","kind":"Secret","name":"theirs"}]`), "want a JSON list",
		},
		"AnyCase":     {"Go ignores the case of keys.", "", named(`[{"Kind":"Secret","kind":"ConfigMap","name":"theirs"}]`), "want a JSON list"},
		"OtherMember": {"Unknown keys are rejected.", "", named(`[{"kind":"Secret","name":"theirs","namespace":"x"}]`), "want a JSON list"},
		"NoJSON":      {"So is invalid JSON.", "", "kubeadmiral.io/followers: x", "want a JSON list"},
		"OtherKind": {
			"A right cannot be checked for a kind whose resource is unknown.",
			"", named(`[{"group":"rbac.authorization.k8s.io","kind":"RoleBinding","name":"theirs"}]`), "want one of the kinds",
		},
		"OtherGroup":    {"The group must match the kind, too.", "", named(`[{"group":"example.com","kind":"ConfigMap","name":"theirs"}]`), "want one of the kinds"},
		"AsManyAsCanBe": {"Up to 16 names can be checked.", "", named(many(16, "a")), ""},
		"TooMany":       {"17 cannot.", "", named(many(17, "a")), "at most 16"},
		"WasThere": {
			"References from before need no right.",
			named(`[{"kind":"Secret","name":"theirs"}]`), named(`[{"kind":"Secret","name":"theirs"}]`) + ", note: x", "",
		},
		"OneMore": {
			"Only the new reference needs the right.",
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

// TestLargeWorkloads: the API server limits the cost of a CEL expression. The references of unusually large workloads
// are still checked.
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
			"And that reference needs the right.",
			user, spec("{" + strings.ReplaceAll(variables, "NAME", "theirs") + "}"), "Secret/theirs",
		},
		"ManyVolumes": {
			"200 volumes from ConfigMaps; the user may get all of them.",
			user, spec("{containers: [{name: c, image: i}], volumes: [" + list(200, "{name: v%d, configMap: {name: m%[1]d}}") + "]}"), "",
		},
		"ManySecrets": {
			"Too many Secrets to check each by name.",
			user, spec("{containers: [{name: c, image: i}], volumes: [" + list(17, "{name: v%d, secret: {secretName: s%[1]d}}") + "]}"),
			"17 Secrets and ConfigMaps would newly follow",
		},
		"ManySecretsOfTheNamespace": {
			"A right to all Secrets of the namespace needs no check by name.",
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

// TestEveryKindIsAskedFor: the check covers every kind with a pod template.
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
			expect(t, "An administrator may get the Secret.", "", create(t, clients["hub"], ns, manifest, client.DryRunAll))
			expect(t, "The user may not get the Secret.", "Secret/theirs would follow", create(t, as(t, user), ns, manifest, client.DryRunAll))
		})
	}
}

// TestOverridesNeedTheRight: an override may add a reference to a Secret only if its author may get the Secret, even if
// no workload names the override policy yet.
func TestOverridesNeedTheRight(t *testing.T) {
	t.Parallel()
	ns, user := namespace(t)
	policy := func(patch string) string {
		return "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: web}, spec: {overrideRules: [{overriders: {" + patch + "}}]}}"
	}
	cases := map[string]struct{ reason, policy, want string }{
		"Mine": {
			"The user may get the Secret.",
			policy(`jsonpatch: [{path: /spec/template/spec/containers/0/envFrom, operator: add, value: [{secretRef: {name: mine}}]}]`), "",
		},
		"Theirs": {
			"The user may not get the Secret.",
			policy(`jsonpatch: [{path: /spec/template/spec/containers/0/envFrom, operator: add, value: [{secretRef: {name: theirs}}]}]`), "theirs",
		},
		"NameAlone": {
			"The override replaces only the name in an existing reference.",
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
