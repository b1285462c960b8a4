package simulate

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/status"
	"refract.dev/test/apiserver"
)

// operator is the administrator of the hub, with all rights.
const operator = "operator"

const rolloutLabel = refractv1alpha1.RolloutPolicyLabel

// people has what users remember, and their unfinished commands.
type people struct {
	// approvals are the approvals that users have given, including rejected ones.
	approvals []approval
	// leaving are FederatedClusters with an unfinished refract unjoin. The value is true if the command also deletes
	// volumes.
	leaving map[string]bool
	// backup is an earlier state of the hub.
	backup *apiserver.Snapshot
	// hadWidgets is the number of versions of Widgets in the backup.
	hadWidgets int
	// strict is how a policy engine of the hub treats new ControllerRevisions.
	strict strictness
	// unlisted is a type that Refract may not list and watch on the hub; the zero value means none.
	unlisted kind
	// mending is true at the end of a run, when all commands are completed.
	mending bool
	// tokens counts the created credentials.
	tokens   int
	scripted client.Client
	settings settings
}

// strictness is how a policy engine treats new objects.
type strictness int

const (
	allows strictness = iota
	refuses
	changes
)

// approval is an annotation that approves something.
type approval struct {
	kind
	namespace, object, annotation, value string
}

// tenant returns a random user and the user's namespace.
func (w *World) tenant() (user, space string) {
	space = tenantSpaces[0]
	if w.Rand.IntN(3) == 0 {
		space = tenantSpaces[1]
	}
	return tenantOf[space], space
}

// pick returns a random element, or the zero value for an empty slice.
func pick[T any](w *World, from []T) (one T) {
	if len(from) == 0 {
		return one
	}
	return from[w.Rand.IntN(len(from))]
}

// there returns a random element of goods, and its object if it exists in the namespace. If want is true, the object
// exists; otherwise it does not. there returns nil if no element qualifies.
func (w *World) there(h hand, space string, want bool) (*good, *unstructured.Unstructured) {
	first := w.Rand.IntN(len(goods))
	for i := range goods {
		g := &goods[(first+i)%len(goods)]
		if o := h.get(g.kind, space, g.object); (o != nil) == want {
			return g, o
		}
	}
	return nil, nil
}

// userOperations returns the operations of the hub's tenants.
func userOperations() []operation {
	return []operation{
		{"create", 55, (*World).createSomething},
		{"edit", 105, (*World).editSomething},
		{"delete", 26, (*World).deleteSomething},
		{"replace --force", 14, (*World).replaceSomething},
		{"run job again", 6, (*World).runAgain},
		{"delete --all", 3, (*World).deleteAll},
		{"label", 22, (*World).labelSomething},
		{"annotate", 22, (*World).annotateSomething},
		{"edit placement", 22, (*World).editPlacement},
		{"delete policy", 6, (*World).deletePolicy},
		{"edit override", 14, (*World).editOverride},
		{"edit rollout policy", 14, (*World).editRolloutPolicy},
		{"set floor", 0, (*World).setAnyFloor},
		{"approve placement", 20, (*World).approvePlacement},
		{"approve rollout", 25, (*World).approveRollout},
		{"resume rollout", 12, (*World).resumeRollout},
		{"pause rollout", 8, (*World).pauseRollout},
		{"approve again", 6, (*World).approveAgain},
	}
}

func (w *World) createSomething() (actor, text string) {
	user, space := w.tenant()
	h := w.hand(w.Hub, user)
	if h.get(kindNamespace, "", space) == nil {
		return w.createSpace(space)
	}
	g, _ := w.there(h, space, false)
	if g == nil {
		return "", ""
	}
	o := g.new(w, space)
	if h.create(o) != nil {
		return "", ""
	}
	return user, "creates " + named(g.kind, space, g.object) + " on the hub" + labelled(o)
}

// createSpace creates a namespace again, with its policies.
func (w *World) createSpace(space string) (actor, text string) {
	h := w.hand(w.Hub, operator)
	ns := object(kindNamespace, "", space, nil)
	floor := ""
	if w.Rand.IntN(3) == 0 {
		label(ns, refractv1alpha1.ClusterRolloutPolicyLabel, "floor")
		floor = ", with ClusterRolloutPolicy floor"
	}
	if h.create(ns) != nil {
		return "", ""
	}
	user := w.hand(w.Hub, tenantOf[space])
	_ = user.create(object(kindPlacement, space, "all", map[string]any{"spec": placementSpecs[0].spec()})) // It may be too early for the policy.
	return operator, "creates Namespace " + space + " on the hub" + floor + ", and in it PropagationPolicy all"
}

// labelled describes the policies that an object names by its labels.
func labelled(o *unstructured.Unstructured) string {
	var texts []string
	for _, l := range policyLabels {
		if v := o.GetLabels()[l.key]; v != "" && strings.HasPrefix(l.kind, "Cluster") {
			texts = append(texts, l.kind+" "+v)
		} else if v != "" {
			texts = append(texts, l.kind+" "+o.GetNamespace()+"/"+v)
		}
	}
	if texts == nil {
		return ", without a policy"
	}
	return ", with " + list(texts)
}

// policyLabels are the labels that name policies, with their possible values.
//
//nolint:gochecknoglobals // It is a constant.
var policyLabels = []struct {
	key, kind string
	names     []string
}{
	{corev1alpha1.PropagationPolicyLabel, "PropagationPolicy", []string{"all", "all", "some", "some", "gone", ""}},
	{corev1alpha1.ClusterPropagationPolicyLabel, "ClusterPropagationPolicy", []string{"everywhere", "", ""}},
	{corev1alpha1.OverridePolicyLabel, "OverridePolicy", []string{"local", "local", "gone", ""}},
	{corev1alpha1.ClusterOverridePolicyLabel, "ClusterOverridePolicy", []string{"global", ""}},
	{refractv1alpha1.RolloutPolicyLabel, "RolloutPolicy", []string{"careful", "careful", "gone", ""}},
	{refractv1alpha1.ClusterRolloutPolicyLabel, "ClusterRolloutPolicy", []string{"floor", ""}},
}

func (w *World) editSomething() (actor, text string) {
	user, space := w.tenant()
	return w.editIn(user, space)
}

// editIn edits a random object of a namespace.
func (w *World) editIn(user, space string) (actor, text string) {
	h := w.hand(w.Hub, user)
	g, _ := w.there(h, space, true)
	if g == nil {
		return "", ""
	}
	change := pick(w, g.edits)
	what := h.changed(g.kind, space, g.object, func(o *unstructured.Unstructured) bool { return change(w, o) })
	if what == "" {
		return "", ""
	}
	return user, fmt.Sprintf("edits %s on the hub: %s", named(g.kind, space, g.object), what)
}

// propagations are the deletion propagation policies of requests.
//
//nolint:gochecknoglobals // It is a constant.
var propagations = []metav1.DeletionPropagation{
	metav1.DeletePropagationBackground, metav1.DeletePropagationBackground, metav1.DeletePropagationBackground,
	metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
}

func (w *World) deleteSomething() (actor, text string) {
	user, space := w.tenant()
	h := w.hand(w.Hub, user)
	g, _ := w.there(h, space, true)
	if g == nil {
		return "", ""
	}
	how := pick(w, propagations)
	if h.delete(g.kind, space, g.object, metav1.DeleteOptions{PropagationPolicy: &how}) != nil {
		return "", ""
	}
	return user, "deletes " + named(g.kind, space, g.object) + " on the hub" + backgroundWord[how]
}

// replaceSomething deletes an object, and at once creates it with other content.
func (w *World) replaceSomething() (actor, text string) {
	user, space := w.tenant()
	g, _ := w.there(w.hand(w.Hub, user), space, true)
	if g == nil {
		return "", ""
	}
	return w.replace(user, space, g)
}

// runAgain replaces a Job.
func (w *World) runAgain() (actor, text string) {
	user, space := w.tenant()
	for i := range goods {
		if goods[i].kind == kindJob {
			return w.replace(user, space, &goods[i])
		}
	}
	return "", ""
}

func (w *World) replace(user, space string, g *good) (actor, text string) {
	h := w.hand(w.Hub, user)
	o := h.get(g.kind, space, g.object)
	if o == nil || len(o.GetFinalizers()) > 0 {
		return "", ""
	}
	made := g.new(w, space)
	if g.kind == kindDeployment && w.Rand.IntN(4) == 0 { // The edit changes fields that are immutable on clusters.
		for _, path := range [][]string{{"spec", "selector", "matchLabels", "app"}, {"spec", "template", "metadata", "labels", "app"}} {
			_ = unstructured.SetNestedField(made.Object, fmt.Sprintf("%s-%d", g.object, w.Rand.IntN(3)), path...) // All parents are maps.
		}
	}
	made.SetLabels(o.GetLabels())
	made.SetAnnotations(o.GetAnnotations())
	how := metav1.DeletePropagationBackground
	if h.delete(g.kind, space, g.object, metav1.DeleteOptions{PropagationPolicy: &how}) != nil {
		return "", ""
	}
	what := ""
	if g.kind == kindDeployment {
		what = ", image " + imageOf(made)
	}
	if h.create(made) != nil {
		return user, "deletes " + named(g.kind, space, g.object) + " on the hub"
	}
	return user, "replaces " + named(g.kind, space, g.object) + " on the hub with kubectl replace --force: deletes it, and creates it with new content" + what
}

// deleteAll deletes all objects of a kind in a namespace.
func (w *World) deleteAll() (actor, text string) {
	user, space := w.tenant()
	h := w.hand(w.Hub, user)
	k := pick(w, []kind{kindConfigMap, kindConfigMap, kindDeployment, kindSecret})
	deleted := 0
	for _, o := range slices.Clone(h.all(k, space)) {
		if h.delete(k, space, o.GetName(), metav1.DeleteOptions{}) == nil {
			deleted++
		}
	}
	if deleted == 0 {
		return "", ""
	}
	return user, fmt.Sprintf("deletes all %ss in Namespace %s on the hub: %d", k, space, deleted)
}

func (w *World) labelSomething() (actor, text string) {
	user, space := w.tenant()
	h := w.hand(w.Hub, user)
	g, _ := w.there(h, space, true)
	if g == nil {
		return "", ""
	}
	l := policyLabels[[]int{0, 0, 0, 0, 1, 2, 2, 3, 4, 4, 4, 5}[w.Rand.IntN(12)]]
	value, was := pick(w, l.names), ""
	err := h.edit(g.kind, space, g.object, func(o *unstructured.Unstructured) {
		was = o.GetLabels()[l.key]
		label(o, l.key, value)
	})
	if err != nil || was == value {
		return "", ""
	}
	return user, fmt.Sprintf("labels %s on the hub: it named %s → it names %s", named(g.kind, space, g.object), policy(l.kind, was), policy(l.kind, value))
}

func policy(kind, name string) string {
	if name == "" {
		return "no " + kind
	}
	return kind + " " + name
}

// asker is an object whose status asks for an approval.
type asker struct {
	kind
	object *unstructured.Unstructured
	token  string
	text   string
}

// approve sets the annotation with the token, like refract approve, and records the approval.
func (w *World) approve(user, annotation string, a asker) bool {
	o := a.object
	w.people.approvals = append(w.people.approvals, approval{a.kind, o.GetNamespace(), o.GetName(), annotation, a.token})
	return w.hand(w.Hub, user).patch(a.kind, o.GetNamespace(), o.GetName(), "", map[string]any{"metadata": map[string]any{
		"resourceVersion": o.GetResourceVersion(), "annotations": map[string]any{annotation: a.token},
	}}) == nil
}

func (w *World) approvePlacement() (actor, text string) {
	h, all := w.hand(w.Hub, operator), []asker(nil)
	for _, k := range []kind{kindPlacement, kindPlacements} {
		for _, o := range h.all(k, "") {
			if token, _, _ := unstructured.NestedString(o.Object, "status", "placementHeld", "token"); token != "" { // Empty without a question.
				all = append(all, asker{k, o, token, "the change of placements by " + named(k, o.GetNamespace(), o.GetName())})
			}
		}
	}
	for _, k := range []kind{kindReport, kindReportGlobe} {
		for _, o := range h.all(k, "") {
			if token, _, _ := unstructured.NestedString(o.Object, "status", "held", "token"); token != "" { // Empty without a question.
				all = append(all, asker{k, o, token, "the change of the placement of " + subjectOf(o)})
			}
		}
	}
	if len(all) == 0 {
		return "", ""
	}
	a := pick(w, all)
	if !w.approve(operator, refractv1alpha1.ApprovePlacementAnnotation, a) {
		return "", ""
	}
	return operator, "approves " + a.text
}

// subjectOf returns the name of a Propagation's object for stories.
func subjectOf(o *unstructured.Unstructured) string {
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "source", "kind") // Empty without a source.
	name, _, _ := unstructured.NestedString(o.Object, "spec", "source", "name") // Empty without a source.
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return kind + " " + name
}

// rollouts returns the rollouts in Propagations, in the form that Refract's commands use.
func (w *World) rollouts() (all []*status.Rollout, of []asker) {
	h := w.hand(w.Hub, operator)
	for _, k := range []kind{kindReport, kindReportGlobe} {
		for _, o := range h.all(k, "") {
			r, found, err := unstructured.NestedMap(o.Object, "status", "rollout")
			if !found || err != nil {
				continue
			}
			s := &refractv1alpha1.RolloutStatus{}
			if mustDecode(r, s) != nil {
				continue
			}
			all = append(all, &status.Rollout{Paused: o.GetAnnotations()[refractv1alpha1.PausedAnnotation] == "true", Rollout: s})
			of = append(of, asker{k, o, s.Awaits, subjectOf(o)})
		}
	}
	return all, of
}

// stepRollout performs a possible step of a random rollout.
func (w *World) stepRollout(decide func(*status.Rollout) (*status.Step, error), verb string) (actor, text string) {
	all, of := w.rollouts()
	var steps []*status.Step
	var askers []asker
	for i, r := range all {
		if step, err := decide(r); err == nil && len(step.Annotations) > 0 {
			steps, askers = append(steps, step), append(askers, of[i])
		}
	}
	if len(steps) == 0 {
		return "", ""
	}
	i := w.Rand.IntN(len(steps))
	a := askers[i]
	for _, key := range []string{refractv1alpha1.ApproveRolloutAnnotation, refractv1alpha1.ResumeAnnotation} {
		if v, ok := steps[i].Annotations[key].(string); ok {
			w.people.approvals = append(w.people.approvals, approval{a.kind, a.object.GetNamespace(), a.object.GetName(), key, v})
		}
	}
	err := w.hand(w.Hub, operator).patch(a.kind, a.object.GetNamespace(), a.object.GetName(), "", map[string]any{
		"metadata": map[string]any{"annotations": steps[i].Annotations},
	})
	if err != nil {
		return "", ""
	}
	return operator, verb + " the rollout of " + a.text
}

func (w *World) approveRollout() (actor, text string) {
	return w.stepRollout((*status.Rollout).Approve, "approves")
}

func (w *World) resumeRollout() (actor, text string) {
	return w.stepRollout((*status.Rollout).Resume, "resumes")
}

func (w *World) pauseRollout() (actor, text string) {
	return w.stepRollout((*status.Rollout).Pause, "pauses")
}

// approveAgain repeats an earlier approval, like a script that runs twice.
func (w *World) approveAgain() (actor, text string) {
	a := pick(w, w.people.approvals)
	if a.value == "" {
		return "", ""
	}
	h := w.hand(w.Hub, operator)
	o := h.get(a.kind, a.namespace, a.object)
	if o == nil || o.GetAnnotations()[a.annotation] == a.value || h.edit(a.kind, a.namespace, a.object, func(o *unstructured.Unstructured) {
		annotate(o, a.annotation, a.value)
	}) != nil {
		return "", ""
	}
	return operator, fmt.Sprintf("gives %s the annotation %s once more, with the value of an earlier approval",
		named(a.kind, a.namespace, a.object), a.annotation)
}

// admitOnHub makes the hub reject the same writes as config/admission, limited to writes that the operations perform.
func (w *World) admitOnHub() {
	w.Hub.Server.Admit(func(write apiserver.Write) *statusError {
		if w.people.strict == refuses && write.GVR == kindRevision.GroupVersionResource && write.Before == nil {
			return forbidden(write, "the policy engine of the hub allows no ControllerRevisions")
		}
		if isRefract(write.User) || write.Before == nil || write.After == nil {
			return nil
		}
		for _, rule := range steering {
			if !slices.Contains(rule.resources, write.GVR.Resource) {
				continue
			}
			said := write.After.GetAnnotations()[rule.annotation]
			if said == "" || said == write.Before.GetAnnotations()[rule.annotation] {
				continue
			}
			if asked, _, _ := unstructured.NestedString(write.Before.Object, rule.asks...); asked != said { // Empty without a question.
				return forbidden(write, "this is not what waits for approval")
			}
		}
		return nil
	})
}

// mutateOnHub makes a policy engine on the hub change new ControllerRevisions.
func (w *World) mutateOnHub() {
	w.Hub.Server.Mutate(func(write apiserver.Write) {
		if w.people.strict == changes && write.GVR == kindRevision.GroupVersionResource && write.Before == nil && write.After != nil {
			_ = unstructured.SetNestedField(write.After.Object, "true", "data", "seen") // The data is a map.
		}
	})
}

//nolint:gochecknoglobals // It is a constant.
var reportResources = []string{"propagations", "clusterpropagations"}
