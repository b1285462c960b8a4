package injectionpolicies

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

func TestHandsOut(t *testing.T) {
	const (
		env    = `env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}]`
		volume = `volumes: [{name: v, secret: {secretName: tls}}]`
		mount  = `, volumeMounts: [{name: v, mountPath: /tls}]`
	)
	cases := map[string]struct {
		reason   string
		was, now string // Specs.
		want     []string
	}{
		"New":         {"All references of a new policy are new.", "", env + ", " + volume, []string{"Secret/db", "Secret/tls"}},
		"MountsAlone": {"Mounts of the pod's own volumes name no objects.", "", `volumeMounts: [{name: data, mountPath: /data}]`, nil},
		"SameItem": {
			"The same item is not a new use.", env,
			`env: [{name: A, value: b}, {name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}]`, nil,
		},
		"OtherVariable": {
			"The value of the Secret becomes visible in another variable.", env,
			`env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: password}}}]`, []string{"Secret/db"},
		},
		"OtherKey": {
			"Another key of the Secret may be more confidential.", env,
			`env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: root}}}]`, []string{"Secret/db"},
		},
		"SecondPlace": {
			"A second use of the same Secret is new.", env,
			env + `, envFrom: [{secretRef: {name: db}}]`, []string{"Secret/db"},
		},
		"Prefix": {
			"A prefix makes other variables.", `envFrom: [{secretRef: {name: db}}]`,
			`envFrom: [{prefix: A_, secretRef: {name: db}}]`, []string{"Secret/db"},
		},
		"Expanded": {
			"The value of the variable becomes part of another variable.", env,
			`env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}, {name: LOG_PREFIX, value: "$(PASSWORD)"}]`, []string{"Secret/db"},
		},
		"ExpandedPath": {
			"The value of the variable becomes part of a path, which others can see.", env + ", volumes: [{name: data, emptyDir: {}}]",
			env + `, volumes: [{name: data, emptyDir: {}}], volumeMounts: [{name: data, mountPath: /data, subPathExpr: $(PASSWORD)}]`, []string{"Secret/db"},
		},
		"ExpandedAsBefore": {
			"A variable that already expanded others is not a new use.", env + `, envFrom: [{secretRef: {name: db}}], volumeMounts: [{name: data, mountPath: /data, subPathExpr: $(HOME)}]`,
			env + `, volumeMounts: [{name: data, mountPath: /data, subPathExpr: $(HOME)}]`, nil,
		},
		"SameVolume": {"The volume keeps its mount path.", volume + mount, volume + mount + `, env: [{name: A, value: b}]`, nil},
		"OtherPath": {
			"The files appear at another path, which may be public.", volume + mount,
			volume + `, volumeMounts: [{name: v, mountPath: /usr/share/www}]`, []string{"Secret/tls"},
		},
		"OneMorePath": {
			"The files appear at an additional path, which may be public.", volume + mount,
			volume + `, volumeMounts: [{name: v, mountPath: /tls}, {name: v, mountPath: /usr/share/www}]`, []string{"Secret/tls"},
		},
		"OtherMounts": {
			"Mounts of other volumes do not matter.", volume + mount,
			volume + `, volumeMounts: [{name: v, mountPath: /tls}, {name: data, mountPath: /data}]`, nil,
		},
		"OtherContainers": {
			"Other containers get all items.", env + `, containers: {include: [web]}`, env + `, containers: {include: [web, debug]}`, []string{"Secret/db"},
		},
		"Position":   {"The variables of the pod can now refer to the item.", env, env + `, envPosition: Prepend`, []string{"Secret/db"}},
		"Enforced":   {"In the mode Audit, no pod got the item before.", env + `, mode: Audit`, env + `, mode: Enforce`, []string{"Secret/db"}},
		"OnConflict": {"The item goes to the same pods.", env, env + `, onConflict: Reject`, nil},
		"Rollout":    {"The time of the rollout does not matter.", env, env + `, rollout: {strategy: None}`, nil},
		"Implicit":   {"Items of the Service are checked separately.", env, env + `, implicit: true`, nil},
		"Fewer":      {"A removed item gives nothing away.", env + ", " + volume, env, nil},
		"RootCA":     {"Every pod already has this ConfigMap.", "", `volumes: [{name: ca, configMap: {name: kube-root-ca.crt}}]`, nil},
		"RootCASecret": {
			"A Secret with the name of that ConfigMap is another object.", "", `volumes: [{name: ca, secret: {secretName: kube-root-ca.crt}}]`, []string{"Secret/kube-root-ca.crt"},
		},
		"Claim": {"The content of a claim comes from its pods.", "", `volumes: [{name: d, persistentVolumeClaim: {claimName: d}}]`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := &write{now: policyOf(t, tc.now)}
			if tc.was != "" {
				w.was = policyOf(t, tc.was)
			}
			before := w.now.DeepCopy()
			var got []string
			for _, ref := range w.handsOut() {
				got = append(got, ref.Kind+"/"+ref.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nhandsOut(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, w.now); diff != "" {
				t.Errorf("handsOut() changed the policy: -before, +after:\n%s", diff)
			}
		})
	}
}

// TestHandsOutOfTheSpec: handsOut ignores items in the status. They come from the Service, and are checked separately.
func TestHandsOutOfTheSpec(t *testing.T) {
	p := policyOf(t, `implicit: true, env: [{name: A, value: b}]`)
	p.Status.FromService = &refractv1beta1.InjectedItems{EnvFrom: policyOf(t, `envFrom: [{secretRef: {name: db}}]`).Spec.EnvFrom}
	if got := (&write{now: p}).handsOut(); len(got) > 0 {
		t.Errorf("handsOut(): got %v, want nothing", got)
	}
}
