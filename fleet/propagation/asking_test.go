package propagation

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// TestApprovedInAdvance: a token that a client can compute in advance never approves a change of a placement.
func TestApprovedInAdvance(t *testing.T) {
	names, _ := thirty()
	spec := corev1alpha1.PropagationPolicySpec{ClusterSelector: map[string]string{"region": "eu"}}
	src := source{gvr: deployments, kind: "Deployment", object: deployment(map[string]string{corev1alpha1.PropagationPolicyLabel: "pp"}, nil, false)}
	was := previous{uid: "1", placed: on(names...)}
	number := decide(src, was, placedBy(t, spec, "")).held.Number // Every client can compute this number.
	for name, tc := range map[string]struct {
		policy, report string
	}{
		"Policy": {policy: number},
		"Report": {report: number},
	} {
		t.Run(name, func(t *testing.T) {
			s := placedBy(t, spec, tc.policy)
			s.approved = tc.report
			p := decide(src, was, s)
			if p.held == nil || len(p.targets) != 30 {
				t.Fatalf("The object waits: %v, on %d clusters; want 30", p.held, len(p.targets))
			}
			if again := decide(src, p.remember(was), s); again.held == nil {
				t.Error("The object does not wait any more.")
			}
		})
	}
}

// asker is a hub with a policy that places objects on the clusters of region eu. All clusters have the label of this
// region until the test removes it.
type asker struct {
	leading *replica
	*testing.T
	*Controller

	sources []*unstructured.Unstructured
	wrote   int // How often the status of the policy was written.
}

var askedPolicy = tree.Policy{Kind: corev1alpha1.KindPropagationPolicy, Namespace: "shop", Name: "pp"}

const askedClusters = 4

// newAsker returns a hub with objects of these names on their clusters.
func newAsker(t *testing.T, names ...string) *asker {
	t.Helper()
	a := &asker{T: t}
	for _, name := range names {
		a.sources = append(a.sources, sourceObject("v1", "ConfigMap", name, "pp"))
	}
	policy := &corev1alpha1.PropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pp", UID: "p", Generation: 1},
		Spec:       corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDuplicate, ClusterSelector: map[string]string{"region": "eu"}},
	}
	a.start("eu", policy)
	a.turn()
	a.placed("At first", askedClusters, names...)
	return a
}

// start starts new controllers, which know only the objects of the hub.
func (a *asker) start(region string, objects ...client.Object) {
	a.Helper()
	for i := range askedClusters {
		fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", i), Labels: map[string]string{"region": region}}}
		fc.Status.Conditions = []corev1alpha1.ClusterCondition{{Type: corev1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
		objects = append(objects, fc)
	}
	s, _ := hubOf(a.T, a.sources...)
	a.leading = &replica{leads: true}
	a.Controller = station(a.T, s, a.leading, interceptor.Funcs{}, objects...)
	a.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	a.join(region)
	records := &refractv1alpha1.PropagationList{}
	a.must(a.reviewer.client.List(a.Context(), records))
	for i := range records.Items {
		r, _ := recordOf(&records.Items[i])
		a.decider.records.update(r, firstListed)
	}
	a.told(a.policy())
	a.state.setComplete()
}

// restart replaces the controllers with others.
func (a *asker) restart(region string) {
	a.Helper()
	hub := []client.Object{a.policy()}
	records := &refractv1alpha1.PropagationList{}
	a.must(a.reviewer.client.List(a.Context(), records))
	for i := range records.Items {
		hub = append(hub, &records.Items[i])
	}
	for _, o := range hub {
		o.SetResourceVersion("")
	}
	a.start(region, hub...)
}

func (a *asker) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// join sets the label of the clusters.
func (a *asker) join(region string) {
	a.Helper()
	a.leading.leads = false // No requests go to the clusters.
	defer func() { a.leading.leads = true }()
	for i := range askedClusters {
		fc := &corev1alpha1.FederatedCluster{}
		key := types.NamespacedName{Name: fmt.Sprintf("m-%d", i)}
		a.must(a.reviewer.client.Get(a.Context(), key, fc))
		fc.Labels = map[string]string{"region": region}
		a.must(a.reviewer.client.Update(a.Context(), fc))
		_, err := a.clusters.Reconcile(a.Context(), reconcile.Request{NamespacedName: key})
		a.must(err)
	}
}

func (a *asker) policy() *corev1alpha1.PropagationPolicy {
	a.Helper()
	is := &corev1alpha1.PropagationPolicy{}
	a.must(a.reviewer.client.Get(a.Context(), types.NamespacedName{Namespace: "shop", Name: "pp"}, is))
	return is
}

// told delivers the policy to the controllers, as its watch would.
func (a *asker) told(policy *corev1alpha1.PropagationPolicy) {
	a.Helper()
	a.must((&policyView{policies: a.decider.policies}).Add(policy))
}

func (a *asker) decideOn(names ...string) {
	a.Helper()
	for _, name := range names {
		_, err := a.decider.decideOne(a.Context(), keyOf("configmaps", name), priorityChanged)
		a.must(err)
	}
}

func (a *asker) reportOn(names ...string) {
	a.Helper()
	for _, name := range names {
		_, err := a.reporter.reportOne(a.Context(), keyOf("configmaps", name))
		a.must(err)
	}
}

// review writes the status of the policy when it is due.
func (a *asker) review() {
	a.Helper()
	<-time.After(time.Minute)
	before := a.policy().ResourceVersion
	_, err := a.reviewer.reviewOne(a.Context(), askedPolicy)
	a.must(err)
	if is := a.policy(); is.ResourceVersion != before {
		a.wrote++
		a.told(is)
	}
}

// turn runs each station until its queue is empty.
func (a *asker) turn() {
	a.Helper()
	for _, obj := range a.sources {
		a.decideOn(obj.GetName())
		a.reportOn(obj.GetName())
	}
	a.review()
}

// asks returns the token in the question of the policy. It fails the test unless the question is about this number of
// objects.
func (a *asker) asks(reason string, objects int64) string {
	a.Helper()
	held := a.policy().Status.PlacementHeld
	if held == nil || held.Objects != objects || held.Token == "" {
		a.Fatalf("%s: the question of the policy is %+v; want one about %d objects", reason, held, objects)
	}
	return held.Token
}

func (a *asker) asksNothing(reason string) {
	a.Helper()
	if held := a.policy().Status.PlacementHeld; held != nil {
		a.Fatalf("%s: the question of the policy is %+v; want none", reason, held)
	}
}

// says sets the approval annotation of the policy to the token.
func (a *asker) says(token string) {
	a.Helper()
	policy := a.policy()
	policy.Annotations = map[string]string{refractv1alpha1.ApprovePlacementAnnotation: token}
	a.must(a.reviewer.client.Update(a.Context(), policy))
	a.told(a.policy())
}

// placed fails the test unless the objects are on this number of clusters.
func (a *asker) placed(reason string, clusters int, names ...string) {
	a.Helper()
	for _, name := range names {
		if p := a.state.desired(keyOf("configmaps", name)); p == nil || len(p.placed) != clusters {
			a.Fatalf("%s: %s is %s; want it on %d clusters", reason, name, summary(p), clusters)
		}
	}
}

// TestApprovedOnce: a token approves one change once, for the objects of its question. The status of the policy is
// written twice: with the question, and when the change is done.
func TestApprovedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, "a", "b", "c")
		a.asksNothing("At first")
		a.join("")
		a.wrote = 0
		a.turn()
		first := a.asks("The labels are lost", 3)
		a.turn()
		a.turn()
		if again := a.asks("Nothing else happens", 3); again != first || a.wrote != 1 {
			t.Errorf("The token of the question is %q, and was %q; the status was written %d times, want once", again, first, a.wrote)
		}
		a.says("x" + first)
		a.turn()
		a.placed("The annotation has another value", askedClusters, "a", "b", "c")
		a.says(first)
		a.turn()
		a.placed("The change is approved", 0, "a", "b", "c")
		a.turn()
		a.asksNothing("The change is done")

		a.join("eu")
		a.turn()
		a.placed("The labels are restored", askedClusters, "a", "b", "c")
		a.join("")
		a.decideOn("a", "b", "c")
		a.placed("The same mistake is repeated, and the policy still has the approval", askedClusters, "a", "b", "c")
		a.turn()
		second := a.asks("The same mistake is repeated", 3)
		if second == first {
			t.Error("The new question has the same token.")
		}
		a.says(first)
		a.turn()
		a.placed("The first approval is repeated", askedClusters, "a", "b", "c")
		a.says(second)
		a.turn()
		a.placed("The second question is approved", 0, "a", "b", "c")
	})
}

// TestApprovedAtOnce: a user makes the same mistake again before the policy shows that the first change is done.
func TestApprovedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, "a", "b")
		a.join("")
		a.turn()
		a.says(a.asks("The labels are lost", 2))
		a.decideOn("a", "b")
		a.placed("The change is approved", 0, "a", "b")
		a.join("eu")
		a.decideOn("a", "b")
		a.placed("The labels are restored", askedClusters, "a", "b")
		a.join("")
		a.decideOn("a", "b")
		a.placed("The same mistake is repeated", askedClusters, "a", "b")
		a.turn()
		a.turn()
		a.asks("The same mistake is repeated", 2)
		a.placed("A new question is asked", askedClusters, "a", "b")
	})
}

// TestApprovedForThese: an object that begins to wait after the question was asked belongs to a later question. Another
// change is another question.
func TestApprovedForThese(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, "a", "b", "c")
		a.join("")
		a.decideOn("a", "b") // Not c yet.
		a.reportOn("a", "b")
		a.review()
		first := a.asks("The labels are lost", 2)
		a.turn()
		if again := a.asks("Another object begins to wait", 2); again != first {
			t.Error("The question has changed while a user may be reading it.")
		}
		a.says(first)
		a.turn()
		a.placed("The change is approved", 0, "a", "b")
		a.placed("The question did not include this object", askedClusters, "c")
		a.turn()
		second := a.asks("The change is done", 1)
		if second == first {
			t.Error("The new question has the same token.")
		}
		// The policy chooses other clusters now.
		fc := &corev1alpha1.FederatedCluster{}
		key := types.NamespacedName{Name: "m-0"}
		a.must(a.reviewer.client.Get(t.Context(), key, fc))
		fc.Labels = map[string]string{"region": "eu"}
		a.must(a.reviewer.client.Update(t.Context(), fc))
		_, err := a.clusters.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		a.must(err)
		a.says(second)
		a.turn()
		a.placed("The approval was for another change", askedClusters, "c")
		a.turn()
		if third := a.asks("Another change waits", 1); third == second || third == first {
			t.Error("The new question has the same token.")
		}
	})
}

// TestAskedAfterRestart: after a restart, the new controllers know the questions and answers.
func TestAskedAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, "a", "b", "c")
		a.join("")
		a.turn()
		token := a.asks("The labels are lost", 3)
		a.restart("")
		a.turn()
		a.placed("There is no approval", askedClusters, "a", "b", "c")
		if again := a.asks("After a restart", 3); again != token {
			t.Error("The question has another token, but nothing has changed.")
		}
		a.says(token)
		a.decideOn("a", "b")
		a.reportOn("a") // The process ends before it reports b and decides c.
		a.restart("")
		a.turn()
		a.placed("The approval is carried out after the restart", 0, "a", "b", "c")
		a.turn()
		a.asksNothing("The change is done")
		a.restart("")
		a.join("eu")
		a.turn()
		a.join("")
		a.turn()
		a.placed("The same mistake is repeated", askedClusters, "a", "b", "c")
		if again := a.asks("The same mistake is repeated", 3); again == token {
			t.Error("The new question has the same token.")
		}
	})
}

// TestAskedAfterUpgrade: a question of an earlier Refract version cannot be approved and is asked again. The same
// happens if the status is lost.
func TestAskedAfterUpgrade(t *testing.T) {
	for name, lose := range map[string]func(policy *corev1alpha1.PropagationPolicy, r *refractv1alpha1.Propagation, token string){
		"Upgrade": func(policy *corev1alpha1.PropagationPolicy, r *refractv1alpha1.Propagation, _ string) {
			number := r.Status.Held.Number
			policy.Status.PlacementHeld = nil
			r.Status.Held = &refractv1alpha1.HeldPlacement{Number: number, Leaves: r.Status.Held.Leaves}
			for _, o := range []client.Object{policy, r} {
				o.SetAnnotations(map[string]string{refractv1alpha1.ApprovePlacementAnnotation: number})
			}
		},
		"PolicyStatusLost": func(policy *corev1alpha1.PropagationPolicy, _ *refractv1alpha1.Propagation, token string) {
			policy.Status = corev1alpha1.PolicyStatus{}
			policy.SetAnnotations(map[string]string{refractv1alpha1.ApprovePlacementAnnotation: token})
		},
		"HeldLost": func(policy *corev1alpha1.PropagationPolicy, r *refractv1alpha1.Propagation, token string) {
			r.Status.Held = nil
			policy.SetAnnotations(map[string]string{refractv1alpha1.ApprovePlacementAnnotation: token})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAsker(t, "a")
				a.join("")
				a.turn()
				token := a.asks("The labels are lost", 1)
				policy, r := a.policy(), &refractv1alpha1.Propagation{}
				a.must(a.reviewer.client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "a.configmaps"}, r))
				lose(policy, r, token)
				for _, o := range []client.Object{policy, r} {
					o.SetResourceVersion("")
				}
				a.start("", policy, r)
				a.turn()
				a.turn()
				a.placed("There is no approval of the present question", askedClusters, "a")
				anew := a.asks("The object waits", 1)
				if p := a.policy(); p.Annotations[refractv1alpha1.ApprovePlacementAnnotation] == anew {
					t.Error("The new question has the token that the policy already has as an annotation.")
				}
				a.says(anew)
				a.turn()
				a.placed("The question is approved", 0, "a")
			})
		})
	}
}

// TestApprovedAlone: the token of one object approves the change of this object once, while others of its policy wait.
func TestApprovedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, "a", "b")
		a.join("")
		a.turn()
		token := a.asks("The labels are lost", 2)
		record := func() *refractv1alpha1.Propagation {
			t.Helper()
			r := &refractv1alpha1.Propagation{}
			a.must(a.reviewer.client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "a.configmaps"}, r))
			return r
		}
		says := func(token string) {
			t.Helper()
			r := record()
			r.Annotations = map[string]string{refractv1alpha1.ApprovePlacementAnnotation: token}
			a.must(a.reviewer.client.Update(t.Context(), r))
			rec, _ := recordOf(r)
			a.decider.records.update(rec, told)
		}
		held := record().Status.Held
		if held.PolicyToken != token || held.Token == token || held.Token == "" {
			t.Fatalf("The report asks %+v; want another token than %q", held, token)
		}
		says(token)
		a.turn()
		a.placed("The token is the one of the policy", askedClusters, "a", "b")
		says(held.Token)
		a.turn()
		a.placed("The object is approved", 0, "a")
		a.placed("There is no approval for this object", askedClusters, "b")
		a.turn()
		if again := a.asks("One object waits", 1); again != token {
			t.Error("The question of the policy has another token while a user may be reading it.")
		}
		a.join("eu")
		a.turn()
		a.join("")
		a.turn()
		a.placed("The same mistake is repeated", askedClusters, "a", "b")
		if again := record().Status.Held; again == nil || again.Token == held.Token {
			t.Errorf("The report asks %+v; want another token than before", again)
		}
	})
}

// TestStuckAnswer: an object that cannot be decided does not delay the next question of its policy forever.
func TestStuckAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, "a", "b")
		a.join("")
		a.decideOn("a")
		a.reportOn("a")
		a.review()
		first := a.asks("The labels are lost", 1)
		a.decideOn("b")
		a.reportOn("b")
		a.says(first)
		a.review()
		if again := a.asks("The object cannot be decided", 1); again != first {
			t.Fatal("The question does not stay.")
		}
		<-time.After(mostAnswered)
		a.review()
		if second := a.asks("The approval has no effect for a minute", 1); second == first {
			t.Error("There is no question about the other object.")
		}
	})
}
