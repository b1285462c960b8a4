package simulate

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/revision"
)

// masked has an object whose key level is "mask" on eu-1, by an override policy. The copy on eu-1 has another level, as
// under a former name.
type masked struct {
	*bench
	kind
	key []byte // It seals the content; nil for content that is not confidential.
}

func newMasked(b *bench, k kind) *masked {
	m := &masked{b, k, nil}
	b.must(b.hub(operator).edit(kindNamespace, "", "shop", func(o *unstructured.Unstructured) { label(o, refractv1alpha1.ClusterRolloutPolicyLabel, "") }))
	h := b.hub("alice")
	mask := rules(rule(fields{"clusters": []any{b.c.Name}}, "jsonpatch", fields{"operator": "add", "path": "/data/level", "value": "mask"}))
	for _, policy := range []*unstructured.Unstructured{
		object(kindRollout, "shop", "careful", map[string]any{"spec": rolloutSpecs[1].spec()}),
		object(kindOverride, "shop", "local", map[string]any{"spec": anything(mask)}),
	} {
		k := map[string]kind{kindRollout.name: kindRollout, kindOverride.name: kindOverride}[policy.GetKind()]
		_ = h.delete(k, "shop", policy.GetName(), metav1.DeleteOptions{}) // It may not exist.
		b.must(h.create(policy))
	}
	if k == kindSecret {
		m.key = []byte(strings.Repeat("k", 32))
		_ = b.hub(culprit).delete(kindSecret, systemNamespace, revision.KeySecret, metav1.DeleteOptions{}) // It may not exist.
		b.must(b.hub(culprit).create(object(kindSecret, systemNamespace, revision.KeySecret, map[string]any{
			"data": map[string]any{revision.KeyName: base64.StdEncoding.EncodeToString(m.key)},
		})))
	}
	b.has(k, "page-1", data("one1", "1111"), corev1alpha1.OverridePolicyLabel, "local", refractv1alpha1.RolloutPolicyLabel, "careful")
	return m
}

func data(level, mode string) map[string]any {
	return map[string]any{"data": map[string]any{"level": level, "mode": mode}}
}

// edit changes the object on the hub, and returns its newest revision, which is stored.
func (m *masked) edit(level, mode string) map[string]any {
	h := m.hub("alice")
	m.must(h.edit(m.kind, "shop", "page-1", func(o *unstructured.Unstructured) { o.Object["data"] = data(level, mode)["data"] }))
	time.Sleep(time.Second)
	policy := &corev1alpha1.OverridePolicy{}
	m.must(runtime.DefaultUnstructuredConverter.FromUnstructured(h.get(kindOverride, "shop", "local").Object, policy))
	of, err := revision.ObjectPart(h.get(m.kind, "shop", "page-1"))
	m.must(err)
	by, err := revision.PolicyPart(policy)
	m.must(err)
	is := revision.Of(m.store(&of, m.key), 0, []refractv1alpha1.PolicyRevision{{
		PolicyReference: refractv1alpha1.PolicyReference{Kind: kindOverride.name, Namespace: "shop", Name: "local", Generation: 1}, Revision: m.store(&by, nil),
	}})
	all := map[string]any{}
	m.must(json.Unmarshal(encoded(is), &all))
	return anything(all)
}

// store stores a part on the hub, and returns its name.
func (m *masked) store(p *revision.Part, key []byte) string {
	name, space := p.Name, "shop"
	content, err := p.Encode()
	m.must(err)
	if key != nil {
		name, space = revision.SealedName(key, name), systemNamespace
		content, err = revision.Seal(content, key, name)
		m.must(err)
	}
	if m.hub(culprit).get(kindRevision, space, name) == nil {
		text := map[string]any{}
		m.must(json.Unmarshal(content, &text))
		m.must(m.hub(culprit).create(object(kindRevision, space, name, map[string]any{"data": text, "revision": int64(1)})))
	}
	return name
}

// record writes a RolloutStatus.
func (m *masked) record(phase string, target, lastGood map[string]any, more ...any) {
	h, name := m.hub(culprit), "page-1-test"
	if h.get(kindReport, "shop", name) == nil {
		m.must(h.create(object(kindReport, "shop", name, map[string]any{"spec": map[string]any{"source": map[string]any{
			"apiVersion": "v1", "kind": m.name, "resource": m.Resource, "name": "page-1",
		}}})))
	}
	by := map[string]any{"kind": kindRollout.name, "namespace": "shop", "name": "careful", "generation": h.get(kindRollout, "shop", "careful").GetGeneration()}
	is := map[string]any{"phase": phase, "target": target, "lastGood": lastGood, "policies": []any{by}}
	for i := 0; i+1 < len(more); i += 2 {
		is[more[i].(string)] = more[i+1]
	}
	m.must(h.editStatus(kindReport, "shop", name, func(o *unstructured.Unstructured) {
		o.Object["status"] = map[string]any{
			"placed": int64(1), "synced": int64(1), "variantCount": int64(1), "ready": int64(1), "rollout": is,
			"clusters": []any{map[string]any{"name": m.c.Name, "state": "Synced"}},
		}
	}))
	time.Sleep(time.Second)
}

// writes applies the copy on eu-1 as the culprit.
func (m *masked) writes(level, mode string) {
	of := m.hub("alice").get(m.kind, "shop", "page-1").DeepCopy()
	of.Object["data"] = data(level, mode)["data"]
	m.copied(m.kind, of, level+mode)
}

// waits has a rollout that has come to no cluster, after a complete one.
func (m *masked) waits(mode string) {
	first := m.edit("two2", "1111")
	m.record("Complete", first, first)
	m.writes("two2", "1111")
	time.Sleep(10 * time.Minute)
	m.record("Waiting", m.edit("six6", mode), first)
}

// superseded has a rollout that superseded another one, which had come to eu-1 alone.
func (m *masked) superseded() {
	first := m.edit("two2", "1111")
	m.record("Complete", first, first)
	m.writes("two2", "1111")
	time.Sleep(10 * time.Minute)
	second := m.edit("two2", "2222")
	m.record("Progressing", second, first, "current", []any{map[string]any{"name": m.c.Name}})
	m.writes("mask", "2222")
	time.Sleep(10 * time.Minute)
	m.writes("two2", "2222") // As under another name of the cluster.
	m.record("Waiting", m.edit("six6", "2222"), first, "superseded", second, "onSuperseded", []any{m.c.Name})
}

// reverts has a rollout that came to eu-1 and was reverted.
func (m *masked) reverts(level, mode string) {
	first := m.edit("two2", "1111")
	m.record("Complete", first, first)
	m.writes("two2", "1111")
	time.Sleep(10 * time.Minute)
	second, current := m.edit(level, mode), []any{map[string]any{"name": m.c.Name}}
	m.record("Progressing", second, first, "current", current)
	m.writes("mask", mode)
	m.record("Reverted", second, first)
}

// TestKeeps: a cluster gets the newest content without its wave only if it is also the content of the revision that the
// cluster has.
func TestKeeps(t *testing.T) {
	for _, tc := range []struct {
		name, want string // Empty if no violation is expected.
		kind       kind
		do         func(m *masked)
	}{
		{"the content for a new name is the same in both revisions", "", kindConfigMap, func(m *masked) {
			m.waits("1111")
			m.writes("mask", "1111")
		}},
		{"the confidential content for a new name is the same in both revisions", "", kindSecret, func(m *masked) {
			m.waits("1111")
			m.writes("mask", "1111")
		}},
		{"a user deletes the stored content, and its key", "", kindSecret, func(m *masked) {
			m.waits("1111")
			for _, o := range m.hub("alice").all(kindRevision, "") {
				m.must(m.hub("alice").delete(kindRevision, o.GetNamespace(), o.GetName(), metav1.DeleteOptions{}))
			}
			m.must(m.hub("alice").delete(kindSecret, systemNamespace, revision.KeySecret, metav1.DeleteOptions{}))
			m.writes("mask", "1111")
		}},
		{"the content for a new name is the same, and the edit is not recorded yet", "", kindConfigMap, func(m *masked) {
			m.waits("1111")
			m.edit("ten0", "1111")
			m.writes("mask", "1111")
		}},
		{"the content for a new name is another in the newest revision", unreleased, kindConfigMap, func(m *masked) {
			m.waits("2222")
			m.writes("mask", "2222")
		}},
		{"the content is the same in a revision that was never released", unreleased, kindConfigMap, func(m *masked) {
			m.waits("2222")
			second := m.edit("six6", "2222")
			m.record("Waiting", m.edit("ten0", "2222"), second)
			m.writes("mask", "2222")
		}},
		{"the content is the same in the revision that was good earlier", unreleased, kindConfigMap, func(m *masked) {
			m.waits("2222")
			second := m.edit("six6", "2222")
			m.record("Complete", second, second)
			time.Sleep(10 * time.Minute)
			m.record("Waiting", m.edit("ten0", "1111"), second)
			m.writes("mask", "1111")
		}},
		{"the content is the same in the superseded revision that the cluster got", "", kindConfigMap, func(m *masked) {
			m.superseded()
			m.writes("mask", "2222")
		}},
		{"the content is the same in the superseded revision, which the cluster did not get", unreleased, kindConfigMap, func(m *masked) {
			m.superseded()
			clear(m.oracle.releases.got)
			m.writes("mask", "2222")
		}},
		{"the rollout is Reverted, and the new content is the same as the former", "", kindConfigMap, func(m *masked) { m.reverts("six6", "1111") }},
		{"the rollout is Reverted, and the new content is not the same as the former", haltedOrReverted, kindConfigMap, func(m *masked) { m.reverts("six6", "2222") }},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "_"), func(t *testing.T) {
			expect(t, tc.want, onBench(t, func(b *bench) { tc.do(newMasked(b, tc.kind)) }))
		})
	}
}
