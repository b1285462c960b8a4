package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"refract.dev/test/harness"
)

// traveller is a ConfigMap that is placed by a policy.
const traveller = `
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: POLICY}}
data: {round: "0"}
`

// placeOnTwo excludes one of the three members. The placement must not change.
const placeOnTwo = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: two, namespace: NS}
spec: {schedulingMode: Duplicate, maxClusters: 2}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: third, namespace: NS}
spec: {schedulingMode: Duplicate, clusterSelector: {region: ap}}
`

// renames is the number of renames of the cluster. The last one restores the first name.
const renames = 20

// TestRename renames a member again and again, while objects change and another replica takes the lead. Some renames
// are interrupted and repeated. No copy may be deleted or recreated. The test starts and stops replicas, so it is not
// parallel.
func TestRename(t *testing.T) {
	const member, still = "member-3", "still" // The object still does not change.
	ns := namespace(t)
	join(t)
	hub := env.Kubeconfig("hub")
	manifests := []string{placeEverywhere, placeOnTwo}
	var names []string
	for i := range 12 {
		policy := []string{"everywhere", "two", "third"}[i%3]
		name := fmt.Sprintf("%s-%d", policy, i)
		names = append(names, name)
		manifests = append(manifests, strings.NewReplacer("NAME", name, "POLICY", policy).Replace(traveller))
	}
	names = append(names, still)
	manifests = append(manifests, strings.NewReplacer("NAME", still, "POLICY", "everywhere").Replace(traveller))
	apply(t, in(ns, manifests...))
	for _, name := range names {
		status(t, ns, name+".configmaps", "Synced")
	}
	before := map[string]string{}
	for _, m := range env.Members {
		for _, name := range names {
			if u := get(t, m, "configmap", ns, name); u != nil {
				before[m+"/"+name] = string(u.GetUID())
			}
		}
	}

	var running, changing = make(chan struct{}), make(chan error, 1)
	round := 0
	go func() {
		for {
			select {
			case <-running:
				changing <- nil
				return
			default:
			}
			round++
			patch := fmt.Sprintf(`{"data":{"round":"%d"}}`, round)
			if _, err := env.Kubectl("hub", "", "patch", "configmap", names[round%(len(names)-1)], "-n", ns, "--type=merge", "-p", patch); err != nil {
				changing <- err
				return
			}
		}
	}()
	name := func(i int) string {
		if i == 0 || i == renames {
			return member
		}
		return fmt.Sprintf("third-%d", i%3) // Names are reused.
	}
	rename := func(to, from string, args ...string) error {
		_, err := env.Refract(append([]string{"join", to, "--replaces", from, "--kubeconfig", hub}, args...)...)
		return err
	}
	for i := range renames {
		if i%4 == 1 {
			_ = rename(name(i+1), name(i), "--timeout", fmt.Sprintf("%dms", 1+i*20)) // The timeout may interrupt any step.
		}
		if err := rename(name(i+1), name(i)); err != nil {
			t.Fatalf("rename %d: %v", i, err)
		}
		if i == renames/2 {
			succeed(t)
		}
	}
	close(running)
	if err := <-changing; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d changes meanwhile", round)

	for _, name := range names {
		status(t, ns, name+".configmaps", "Synced")
	}
	after := map[string]string{}
	for _, m := range env.Members {
		for _, name := range names {
			if u := get(t, m, "configmap", ns, name); u != nil {
				after[m+"/"+name] = string(u.GetUID())
			}
		}
		writes, err := env.Writes(m)
		if err != nil {
			t.Fatal(err)
		}
		stillWritten := 0
		for _, w := range writes {
			if w.Namespace == ns && w.Name == still {
				stillWritten++
			}
			if w.Namespace == ns && strings.HasPrefix(w.Verb, "delete") {
				t.Errorf("%s: want no copy deleted, got %s", m, w)
			}
		}
		if stillWritten > 2 { // The first write may fail because the namespace does not exist yet.
			t.Errorf("%s: want one write of the unchanged object, got %d", m, stillWritten)
		}
	}
	for key, uid := range before {
		if after[key] != uid {
			t.Errorf("%s: want UID %s, got %q", key, uid, after[key])
		}
	}
	if len(after) != len(before) {
		t.Errorf("want all copies on their clusters, got %d of %d", len(after), len(before))
	}
	harness.Eventually(t, "no row has another name", func(context.Context) error {
		for _, name := range names {
			rows, _ := there(t, "hub", "propagations.refract.dev", ns, name+".configmaps").Object["status"].(map[string]any)["clusters"].([]any)
			for _, r := range rows {
				if name, _ := r.(map[string]any)["name"].(string); !slices.Contains(env.Members, name) {
					return errors.New("there is a row of " + name)
				}
			}
		}
		return nil
	})
}
