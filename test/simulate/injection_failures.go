package simulate

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func disturbPods(in *injection) (actor, text string) {
	if in.odds(3) {
		b := one(in, breads)
		if in.sick[b.object] {
			delete(in.sick, b.object)
			return fault, "the pods of " + b.object + " can become ready again"
		}
		in.sick[b.object] = true
		return fault, "the pods of " + b.object + " do not become ready, or stay so"
	}
	p := one(in, in.all(podKind))
	if p == nil || in.user("node").delete(podKind, bakery, p.GetName(), metav1.DeleteOptions{}) != nil {
		return "", ""
	}
	return "admin", "drains a node, which deletes pod " + p.GetName()
}

func changeBudget(in *injection) (actor, text string) {
	b := one(in, breads)
	name := b.object + one(in, []string{"", "", "-second"})
	carol := in.user(baker)
	if carol.get(budgetKind, bakery, name) != nil {
		if carol.delete(budgetKind, bakery, name, metav1.DeleteOptions{}) != nil {
			return "", ""
		}
		return baker, "deletes " + named(budgetKind, bakery, name)
	}
	field, n := one(in, []string{"minAvailable", "maxUnavailable"}), one(in, []int64{0, 1, 2})
	if carol.create(object(budgetKind, bakery, name, map[string]any{"spec": map[string]any{
		field: n, "selector": map[string]any{"matchLabels": map[string]any{"app": b.object}},
	}})) != nil {
		return "", ""
	}
	return baker, fmt.Sprintf("creates %s: %s %d", named(budgetKind, bakery, name), field, n)
}

func changeSecret(in *injection) (actor, text string) {
	carol := in.user(baker)
	switch s := carol.get(kindSecret, bakery, "db"); {
	case s == nil:
		if carol.create(in.secret()) != nil {
			return "", ""
		}
		return baker, "creates Secret bakery/db"
	case in.odds(2):
		if carol.delete(kindSecret, bakery, "db", metav1.DeleteOptions{}) != nil {
			return "", ""
		}
		return baker, "deletes Secret bakery/db"
	default:
		key := map[bool]string{true: "user", false: "password"}[part(s, "data")["password"] != nil]
		if carol.edit(kindSecret, bakery, "db", func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{key: "c2VjcmV0"} }) != nil {
			return "", ""
		}
		return baker, "has Secret bakery/db have the key " + key + " alone"
	}
}

func changeWebhook(in *injection) (actor, text string) {
	h := &in.webhook
	defer in.rules.observe()
	switch n := in.world.Rand.IntN(8); {
	case h.down:
		h.down = false
		return fault, "eu-1's API server reaches the webhook of the injection again"
	case h.full:
		h.full = false
		return "admin", "raises the quota of namespace bakery"
	case h.behind != nil:
		h.behind = nil
		return fault, "the webhook of the injection knows the policies of now"
	case n < 3:
		h.down = true
		return fault, "eu-1's API server does not reach the webhook of the injection"
	case n < 5:
		h.full = true
		return "admin", "lets namespace bakery have no more pods, by a quota"
	case n < 7:
		h.behind = append([]*unstructured.Unstructured{}, in.policies()...)
		return fault, "the webhook of the injection hears of no further policy"
	default:
		return "", ""
	}
}

// changeService changes the content that a Service provides. It writes the content into the status of policies, as
// Refract's controller for Services does.
func changeService(in *injection) (actor, text string) {
	for _, o := range in.policies() {
		if !isTrue(o, "spec", "implicit") || in.odds(3) {
			continue
		}
		value := fmt.Sprintf("service-%d", in.world.Rand.IntN(5))
		if in.user("refract-injection").editStatus(injectionKind, bakery, o.GetName(), func(o *unstructured.Unstructured) {
			put(o, []any{map[string]any{"name": "FROM_" + strings.ToUpper(o.GetName()), "value": value}}, "status", "fromService", "env")
		}) != nil {
			return "", ""
		}
		return baker, "annotates Service " + o.GetName() + ": its consumers get " + value
	}
	return "", ""
}

// passBakery lets time pass, sometimes more than the deadline of a rollout.
func passBakery(in *injection) (actor, text string) {
	long := one(in, []time.Duration{time.Minute, 3 * time.Minute, 11 * time.Minute})
	if in.odds(2) {
		in.world.injectionControllers()
	}
	in.world.drain(long)
	return passing, fmt.Sprintf("%s pass", long)
}

func killInjector(in *injection) (actor, text string) {
	p := in.injector(one(in, injectorNames))
	if p == nil {
		return "", ""
	}
	in.world.kill(p)
	return fault, p.Name + " is killed"
}

func stopInjector(in *injection) (actor, text string) {
	p := in.injector(one(in, injectorNames))
	if p == nil {
		return "", ""
	}
	in.world.stop(p)
	return "admin", "stops " + p.Name
}

func startInjector(in *injection) (actor, text string) {
	replica := one(in, injectorNames)
	if in.injector(replica) != nil {
		return "", ""
	}
	p := in.start(replica)
	return "admin", "starts " + p.Name
}

func cutInjector(in *injection) (actor, text string) {
	p := in.injector(one(in, injectorNames))
	if p == nil {
		return "", ""
	}
	if p.cut[&in.at.Target] {
		delete(p.cut, &in.at.Target)
		return fault, p.Name + " reaches eu-1 again"
	}
	p.cut[&in.at.Target] = true
	return fault, p.Name + " does not reach eu-1"
}
