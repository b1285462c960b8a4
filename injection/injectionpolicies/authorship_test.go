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
		"New":         {"All of it is new.", "", env + ", " + volume, []string{"Secret/db", "Secret/tls"}},
		"MountsAlone": {"They are of volumes of the pod, and name nothing.", "", `volumeMounts: [{name: data, mountPath: /data}]`, nil},
		"SameItem": {
			"It goes where it went.", env,
			`env: [{name: A, value: b}, {name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}]`, nil,
		},
		"OtherVariable": {
			"What prints A prints the password now.", env,
			`env: [{name: A, valueFrom: {secretKeyRef: {name: db, key: password}}}]`, []string{"Secret/db"},
		},
		"OtherKey": {
			"Whoever is meant to have the one may not have the other.", env,
			`env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: root}}}]`, []string{"Secret/db"},
		},
		"SecondPlace": {
			"One use of it is known, the other is new.", env,
			env + `, envFrom: [{secretRef: {name: db}}]`, []string{"Secret/db"},
		},
		"Prefix": {
			"It makes other variables.", `envFrom: [{secretRef: {name: db}}]`,
			`envFrom: [{prefix: A_, secretRef: {name: db}}]`, []string{"Secret/db"},
		},
		"Expanded": {
			"The value of one variable becomes part of another.", env,
			`env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}, {name: LOG_PREFIX, value: "$(PASSWORD)"}]`, []string{"Secret/db"},
		},
		"ExpandedPath": {
			"Or of a path, which others see.", env + ", volumes: [{name: data, emptyDir: {}}]",
			env + `, volumes: [{name: data, emptyDir: {}}], volumeMounts: [{name: data, mountPath: /data, subPathExpr: $(PASSWORD)}]`, []string{"Secret/db"},
		},
		"ExpandedAsBefore": {
			"That it was part of another before is not new.", env + `, envFrom: [{secretRef: {name: db}}], volumeMounts: [{name: data, mountPath: /data, subPathExpr: $(HOME)}]`,
			env + `, volumeMounts: [{name: data, mountPath: /data, subPathExpr: $(HOME)}]`, nil,
		},
		"SameVolume": {"It is mounted where it was.", volume + mount, volume + mount + `, env: [{name: A, value: b}]`, nil},
		"OtherPath": {
			"What serves this path shows the files now.", volume + mount,
			volume + `, volumeMounts: [{name: v, mountPath: /usr/share/www}]`, []string{"Secret/tls"},
		},
		"OneMorePath": {
			"It was there in a volume that somebody else named.", volume + mount,
			volume + `, volumeMounts: [{name: v, mountPath: /tls}, {name: v, mountPath: /usr/share/www}]`, []string{"Secret/tls"},
		},
		"OtherMounts": {
			"Those of other volumes have nothing to do with it.", volume + mount,
			volume + `, volumeMounts: [{name: v, mountPath: /tls}, {name: data, mountPath: /data}]`, nil,
		},
		"OtherContainers": {
			"Others get all of it.", env + `, containers: {include: [web]}`, env + `, containers: {include: [web, debug]}`, []string{"Secret/db"},
		},
		"Position":   {"The variables of the pod can use it now.", env, env + `, envPosition: Prepend`, []string{"Secret/db"}},
		"Enforced":   {"Nobody got it before.", env + `, mode: Audit`, env + `, mode: Enforce`, []string{"Secret/db"}},
		"OnConflict": {"It goes to no other pod.", env, env + `, onConflict: Reject`, nil},
		"Rollout":    {"Nor is the time of any matter.", env, env + `, rollout: {strategy: None}`, nil},
		"Implicit":   {"What the Service adds is another matter.", env, env + `, implicit: true`, nil},
		"Fewer":      {"Who takes away gives nothing.", env + ", " + volume, env, nil},
		"RootCA":     {"Every pod has it.", "", `volumes: [{name: ca, configMap: {name: kube-root-ca.crt}}]`, nil},
		"RootCASecret": {
			"This is something else by the same name.", "", `volumes: [{name: ca, secret: {secretName: kube-root-ca.crt}}]`, []string{"Secret/kube-root-ca.crt"},
		},
		"Claim": {"A claim holds what its pods put there.", "", `volumes: [{name: d, persistentVolumeClaim: {claimName: d}}]`, nil},
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

// TestHandsOutOfTheSpec: items in the status come from the Service, and are checked separately.
func TestHandsOutOfTheSpec(t *testing.T) {
	p := policyOf(t, `implicit: true, env: [{name: A, value: b}]`)
	p.Status.FromService = &refractv1beta1.InjectedItems{EnvFrom: policyOf(t, `envFrom: [{secretRef: {name: db}}]`).Spec.EnvFrom}
	if got := (&write{now: p}).handsOut(); len(got) > 0 {
		t.Errorf("handsOut(): got %v, want nothing", got)
	}
}
