package simulate

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/injected"
)

// injectionOperations returns the operations in the bakery and on the replicas of the injection. It returns nil in a
// world without injection.
func (w *World) injectionOperations() []operation {
	if w.injection == nil {
		return nil
	}
	return bakeryOperations
}

// bakeryOperations are these operations.
//
//nolint:gochecknoglobals // It is a constant.
var bakeryOperations = []operation{
	{"injection: controllers move", 150, baked(moveSome)},
	{"injection: controllers catch up", 60, baked(moveAll)},
	{"injection: policy is created", 25, baked(createPolicy)},
	{"injection: policy is edited", 50, baked(editPolicy)},
	{"injection: policy is deleted", 6, baked(deletePolicy)},
	{"injection: policy is replaced", 4, baked(replacePolicy)},
	{"injection: rollout is paused", 10, baked(pausePolicy)},
	{"injection: rollout is resumed", 25, baked(resumePolicy)},
	{"injection: rollout is approved", 25, baked(approvePolicy)},
	{"injection: workload is edited", 40, baked(editWorkload)},
	{"injection: workload is created", 12, baked(createWorkload)},
	{"injection: workload is deleted", 5, baked(deleteWorkload)},
	{"injection: workload is left to its owner", 20, baked(leaveWorkload)},
	{"injection: hash is taken off", 8, baked(revertHash)},
	{"injection: pods are disturbed", 25, baked(disturbPods)},
	{"injection: budget", 12, baked(changeBudget)},
	{"injection: Secret", 14, baked(changeSecret)},
	{"injection: webhook", 25, baked(changeWebhook)},
	{"injection: Service", 8, baked(changeService)},
	{"injection: time passes", 12, baked(passBakery)},
	{"injection: injector is killed", 8, baked(killInjector)},
	{"injection: injector is stopped", 6, baked(stopInjector)},
	{"injection: injector is started", 20, baked(startInjector)},
	{"injection: injector is cut off", 8, baked(cutInjector)},
}

// baked turns a function of the injection into an operation of the world.
func baked(do func(*injection) (actor, text string)) func(*World) (string, string) {
	return func(w *World) (string, string) {
		in := w.injection
		if in == nil || in.at.Down {
			return "", ""
		}
		if in.user("admin").get(kindNamespace, "", bakery) == nil {
			return in.rebuilt()
		}
		return do(in)
	}
}

// rebuilt creates the objects of the bakery again after eu-1 was rebuilt.
func (in *injection) rebuilt() (actor, text string) {
	if len(in.at.Server.All(injectionKind.GroupVersionResource)) > 0 {
		return "", ""
	}
	in.furnish()
	return "admin", "makes namespace " + bakery + " with its workloads on eu-1 again"
}

// one returns a random element, or the zero value for an empty slice.
func one[T any](in *injection, of []T) T {
	if len(of) == 0 {
		var none T
		return none
	}
	return of[in.world.Rand.IntN(len(of))]
}

func (in *injection) odds(n int) bool { return in.world.Rand.IntN(n) == 0 }

// moveSome performs some actions of one controller.
func moveSome(in *injection) (actor, text string) {
	m := one(in, movers)
	var did []string
	for range 1 + in.world.Rand.IntN(4) {
		move := m.move(in)
		if move == "" {
			break
		}
		did = append(did, move)
	}
	return m.name, strings.Join(did, ", then ")
}

// moveAll performs all pending actions of all controllers.
func moveAll(in *injection) (actor, text string) {
	in.world.injectionControllers()
	return "eu-1's controllers", "catch up with all their work in " + bakery
}

// recipe is a possible policy.
type recipe struct {
	name     string
	selector map[string]any
	env      string
	secret   bool
}

//nolint:gochecknoglobals // It is a constant.
var recipes = []recipe{
	{"database", map[string]any{"matchLabels": map[string]any{"uses-database": "true"}}, "DB_HOST", true},
	{"cache", map[string]any{"matchLabels": map[string]any{"uses-cache": "true"}}, "CACHE_HOST", false},
	{"all", map[string]any{}, "BAKERY_SIZE", false},
}

// newPolicy returns a random policy.
func (in *injection) newPolicy() *unstructured.Unstructured {
	r := one(in, recipes)
	spec := map[string]any{"selector": r.selector, "service": r.name, "rollout": in.rollout()}
	if in.odds(4) {
		spec["implicit"] = true
	}
	o := object(injectionKind, bakery, r.name, anything(map[string]any{"spec": spec}))
	in.fill(o, &r)
	if in.odds(10) {
		put(o, string(refractv1beta1.ModeAudit), "spec", "mode")
	}
	return o
}

// rollout returns random rollout parameters.
func (in *injection) rollout() map[string]any {
	strategy := refractv1beta1.RolloutRolling
	switch in.world.Rand.IntN(8) {
	case 0:
		strategy = refractv1beta1.RolloutNone
	case 1, 2:
		strategy = refractv1beta1.RolloutManual
	}
	return map[string]any{
		"strategy": string(strategy), "maxConcurrent": int64(1 + in.world.Rand.IntN(3)), "minReadySeconds": one(in, []int64{0, 0, 5, 30}),
	}
}

// fill changes the injected content of a policy. Sometimes the new content breaks pods.
func (in *injection) fill(o *unstructured.Unstructured, r *recipe) {
	value := fmt.Sprintf("%s-%d", r.name, in.world.Rand.IntN(20))
	switch in.world.Rand.IntN(12) {
	case 0, 1:
		value = "broken-" + value
	default:
	}
	env := []any{map[string]any{"name": r.env, "value": value}}
	if r.secret && !in.odds(3) {
		env = append(env, map[string]any{"name": "DB_PASSWORD", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "db", "key": "password"}}})
	}
	if in.odds(8) { // Containers already have this variable with another value.
		env = append(env, map[string]any{"name": "NAME", "value": r.name})
	}
	put(o, env, "spec", "env")
	if in.odds(5) {
		put(o, []any{map[string]any{"name": "scratch-" + r.name, "emptyDir": map[string]any{}}}, "spec", "volumes")
		put(o, []any{map[string]any{"name": "scratch-" + r.name, "mountPath": "/" + r.name}}, "spec", "volumeMounts")
	}
}

func createPolicy(in *injection) (actor, text string) {
	o := in.newPolicy()
	if in.user(baker).create(o) != nil {
		return "", ""
	}
	return baker, "creates " + named(injectionKind, bakery, o.GetName()) + ": " + summary(o)
}

// summary describes a policy.
func summary(o *unstructured.Unstructured) string {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "env")
	all, _ := v.([]any)
	var items []string
	for _, item := range all {
		e, _ := item.(map[string]any)
		value, _ := e["value"].(string)
		if value == "" {
			value = "from a Secret"
		}
		items = append(items, fmt.Sprintf("%s=%s", e["name"], value))
	}
	text := fmt.Sprintf("it injects %s; strategy %s, maxConcurrent %d, minReadySeconds %d", list(items), textOf(o, "spec", "rollout", "strategy"),
		number(o, "spec", "rollout", "maxConcurrent"), number(o, "spec", "rollout", "minReadySeconds"))
	if mode := textOf(o, "spec", "mode"); mode != "" {
		text += ", mode " + mode
	}
	return text
}

// somePolicy returns a random policy, or nil.
func (in *injection) somePolicy() *unstructured.Unstructured { return one(in, in.policies()) }

func editPolicy(in *injection) (actor, text string) {
	was := in.somePolicy()
	if was == nil {
		return "", ""
	}
	var is *unstructured.Unstructured
	what := in.user(baker).changed(injectionKind, bakery, was.GetName(), func(o *unstructured.Unstructured) bool {
		is = o
		for _, r := range recipes {
			if r.name == o.GetName() && !in.odds(4) {
				in.fill(o, &r)
			}
		}
		switch in.world.Rand.IntN(8) {
		case 0:
			put(o, in.rollout(), "spec", "rollout")
		case 1:
			put(o, string(one(in, []refractv1beta1.Mode{refractv1beta1.ModeAudit, refractv1beta1.ModeEnforce, refractv1beta1.ModeEnforce})), "spec", "mode")
		case 2:
			put(o, string(one(in, []refractv1beta1.OnConflict{refractv1beta1.ConflictReject, refractv1beta1.ConflictSkip})), "spec", "onConflict")
		}
		return true
	})
	if what == "" {
		return "", ""
	}
	return baker, "edits " + named(injectionKind, bakery, is.GetName()) + ": " + what + "; now " + summary(is)
}

func deletePolicy(in *injection) (actor, text string) {
	o := in.somePolicy()
	if o == nil || in.user(baker).delete(injectionKind, bakery, o.GetName(), metav1.DeleteOptions{}) != nil {
		return "", ""
	}
	return baker, "deletes " + named(injectionKind, bakery, o.GetName())
}

func replacePolicy(in *injection) (actor, text string) {
	o := in.somePolicy()
	if o == nil || in.user(baker).delete(injectionKind, bakery, o.GetName(), metav1.DeleteOptions{}) != nil {
		return "", ""
	}
	anew := object(injectionKind, bakery, o.GetName(), anything(map[string]any{"spec": part(o, "spec")}))
	for _, r := range recipes {
		if r.name == o.GetName() && in.odds(2) {
			in.fill(anew, &r)
		}
	}
	if in.user(baker).create(anew) != nil {
		return "", ""
	}
	return baker, "deletes " + named(injectionKind, bakery, o.GetName()) + " and creates it again: " + summary(anew)
}

// stepOf returns the write of a command for a policy.
type stepOf func(*refractv1beta1.ServiceInjectionPolicy) (*injected.Step, error)

// steer does the same as refract rollout pause, resume and approve.
func (in *injection) steer(o *unstructured.Unstructured, verb string, step stepOf) (actor, text string) {
	if o == nil {
		return "", ""
	}
	p, err := policyOf(o)
	if err != nil {
		return "", ""
	}
	s, err := step(p)
	if err != nil || len(s.Annotations) == 0 {
		return "", ""
	}
	if in.user(baker).patch(injectionKind, bakery, o.GetName(), "", map[string]any{"metadata": map[string]any{"annotations": s.Annotations}}) != nil {
		return "", ""
	}
	return baker, verb + " the rollout of " + named(injectionKind, bakery, o.GetName())
}

func pausePolicy(in *injection) (actor, text string) {
	return in.steer(in.somePolicy(), "pauses", func(p *refractv1beta1.ServiceInjectionPolicy) (*injected.Step, error) { return injected.Pause(p), nil })
}

func resumePolicy(in *injection) (actor, text string) {
	return in.steer(in.somePolicy(), "resumes", injected.Resume)
}

func approvePolicy(in *injection) (actor, text string) {
	o := in.somePolicy()
	if o != nil && in.odds(6) { // An outdated token.
		stale := fmt.Sprintf("%016x", in.world.Rand.Uint64())
		if in.user(baker).edit(injectionKind, bakery, o.GetName(), func(o *unstructured.Unstructured) {
			annotate(o, refractv1beta1.ApproveRolloutAnnotation, stale)
		}) != nil {
			return "", ""
		}
		return baker, "approves content of before of " + named(injectionKind, bakery, o.GetName())
	}
	return in.steer(o, "approves", injected.Approve)
}

// someWorkload returns a random workload, or nil.
func (in *injection) someWorkload() *unstructured.Unstructured { return one(in, in.workloads()) }

func editWorkload(in *injection) (actor, text string) { return in.changeWorkload(in.change) }

// changeWorkload changes a random workload.
func (in *injection) changeWorkload(change func(*unstructured.Unstructured) bool) (actor, text string) {
	o := in.someWorkload()
	if o == nil {
		return "", ""
	}
	k := kindNamed(o.GetKind())
	what := in.user(baker).changed(k, bakery, o.GetName(), change)
	if what == "" {
		return "", ""
	}
	return baker, "edits " + named(k, bakery, o.GetName()) + ": " + what
}

// change makes a random change to a workload.
func (in *injection) change(o *unstructured.Unstructured) bool {
	switch in.world.Rand.IntN(8) {
	case 0, 1:
		if o.GetKind() == daemonSetKind.name {
			return false
		}
		put(o, one(in, []int64{0, 1, 2, 3, 4}), "spec", "replicas")
	case 2, 3:
		tag := fmt.Sprint(1 + in.world.Rand.IntN(9))
		if in.odds(4) {
			tag = one(in, []string{"broken", "missing"})
		}
		in.container(o)["image"] = "registry.sim/" + o.GetName() + ":" + tag
	case 4:
		use := one(in, []string{"uses-database", "uses-cache"})
		labels := part(o, "spec", "template", "metadata", "labels")
		if labels[use] == nil {
			labels[use] = "true"
		} else {
			delete(labels, use)
		}
	case 5:
		put(o, time.Now().UTC().Format(time.RFC3339), "spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt")
	case 6:
		annotations := part(o, "spec", "template", "metadata", "annotations")
		if annotations[refractv1beta1.InjectAnnotation] != nil {
			delete(annotations, refractv1beta1.InjectAnnotation)
		} else {
			put(o, "false", "spec", "template", "metadata", "annotations", refractv1beta1.InjectAnnotation)
		}
	default:
		env, _ := in.container(o)["env"].([]any)
		value := fmt.Sprintf("own-%d", in.world.Rand.IntN(3))
		name := one(in, []string{"DB_HOST", "CACHE_HOST", "BAKERY_SIZE"})
		if len(env) > 1 {
			in.container(o)["env"] = env[:1]
		} else {
			in.container(o)["env"] = append(env, map[string]any{"name": name, "value": value})
		}
	}
	return true
}

func (in *injection) container(o *unstructured.Unstructured) map[string]any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec", "containers")
	all, _ := v.([]any)
	c, _ := all[0].(map[string]any)
	return c
}

func createWorkload(in *injection) (actor, text string) {
	b := one(in, breads)
	if in.user(baker).create(in.newWorkload(&b)) != nil {
		return "", ""
	}
	return baker, "creates " + named(b.kind, bakery, b.object)
}

func deleteWorkload(in *injection) (actor, text string) {
	o := in.someWorkload()
	if o == nil || in.user(baker).delete(kindNamed(o.GetKind()), bakery, o.GetName(), metav1.DeleteOptions{}) != nil {
		return "", ""
	}
	return baker, "deletes " + named(kindNamed(o.GetKind()), bakery, o.GetName())
}

// leaveWorkload makes Refract leave the recreation of a workload's pods to the owner, or ends this.
func leaveWorkload(in *injection) (actor, text string) { return in.changeWorkload(in.leave) }

func (in *injection) leave(o *unstructured.Unstructured) bool {
	if in.odds(2) {
		if o.GetAnnotations()[refractv1beta1.RolloutAnnotation] != "" {
			annotate(o, refractv1beta1.RolloutAnnotation, "")
		} else {
			annotate(o, refractv1beta1.RolloutAnnotation, "false")
		}
		return true
	}
	switch o.GetKind() {
	case kindDeployment.name:
		put(o, !isTrue(o, "spec", "paused"), "spec", "paused")
		return true
	case statefulSetKind.name:
		if in.odds(2) {
			put(o, map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"partition": one(in, []int64{0, 1})}}, "spec", "updateStrategy")
			return true
		}
	case daemonSetKind.name:
	default:
		return false
	}
	put(o, map[string]any{"type": one(in, []string{"OnDelete", "RollingUpdate"})}, "spec", "updateStrategy")
	return true
}

// revertHash applies a workload from a repository, without the annotation of the injection.
func revertHash(in *injection) (actor, text string) {
	for _, o := range in.workloads() {
		if templateHash(o) == "" || in.odds(3) {
			continue
		}
		if in.user("gitops").edit(kindNamed(o.GetKind()), bakery, o.GetName(), func(o *unstructured.Unstructured) {
			delete(part(o, "spec", "template", "metadata", "annotations"), refractv1beta1.HashAnnotation)
		}) != nil {
			return "", ""
		}
		return "gitops", "writes " + named(kindNamed(o.GetKind()), bakery, o.GetName()) + " as it is in its repository: without refract.dev/injection-hash"
	}
	return "", ""
}
