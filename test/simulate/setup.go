package simulate

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/hub"
	"refract.dev/fleet/leadership"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/fleet/propagation"
	"refract.dev/test/apiserver"
)

// kind is a type of objects that users and the controllers of clusters use.
type kind struct {
	schema.GroupVersionResource

	name       string
	namespaced bool
}

// String returns the name of the kind in stories.
func (k kind) String() string { return k.name }

func kindOf(group, version, resource, name string) kind {
	return kind{schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, name, true}
}

func (k kind) global() kind { k.namespaced = false; return k }

// The parts of the world. There are few names, so that users use the same objects.
//
//nolint:gochecknoglobals // They are constants.
var (
	clusterNames  = []string{"eu-1", "us-1", "ap-1"}
	tenantSpaces  = []string{"shop", "team"}
	tenantOf      = map[string]string{"shop": "alice", "team": "bob"}
	secondNames   = map[string]string{"eu-1": "eu-2", "us-1": "us-2", "ap-1": "ap-2"}
	clusterLabels = map[string]map[string]any{"eu-1": {"region": "eu", "tier": "prod"}, "us-1": {"region": "us", "tier": "prod"},
		"ap-1": {"region": "ap", "tier": "test"}}
	replicasOfHub  = []string{"refract-a", "refract-b"}
	systemSpaces   = []string{metav1.NamespaceDefault, metav1.NamespaceSystem}
	backgroundWord = map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationBackground: "", metav1.DeletePropagationForeground: " --cascade=foreground",
		metav1.DeletePropagationOrphan: " --cascade=orphan",
	}
)

const apiPort = ":6443"

// keySecret is the Secret with the key that encrypts revisions of Secrets, and keyName is the name of this key in its
// data, as in fleet/revision.
const (
	keySecret = "refract-revisions"
	keyName   = "key"
)

// patient disables the pauses of client-go after errors. client-go stores the time of the last error for the whole
// process, and the next world begins at an earlier time.
//
//nolint:gochecknoglobals // It is done once.
var patient = sync.OnceFunc(func() { utilruntime.ErrorHandlers = nil }) //nolint:reassign // Kubernetes documents it as a setting.

// newWorld returns a hub and three clusters with objects of users, without processes.
func newWorld(seed uint64, to io.Writer) *World {
	patient()
	w := &World{
		Rand:    rand.New(rand.NewPCG(seed, 3)),
		Journal: newJournal(to), gates: newGates(), targets: map[string]*Target{}, Skews: map[string]time.Duration{},
		began: time.Now(), calm: true, stats: stats{operations: map[string]int{}},
	}
	w.people = people{leaving: map[string]bool{}, settings: w.newSettings()}
	w.Hub = &Target{Name: "hub", Host: "hub.sim" + apiPort}
	w.serveTypes(w.Hub, hubTypes(widgetVersions), 0, nil)
	w.admitOnHub()
	w.mutateOnHub()
	for i, name := range clusterNames {
		c := &Cluster{Target: Target{Name: name, Host: name + ".sim" + apiPort}, Index: i, Lab: w.newLab(i)}
		w.Clusters = append(w.Clusters, c)
		w.serveTypes(&c.Target, w.typesOf(c), i+1, func(_, _ string, life time.Duration) (token string, until time.Time) {
			return w.grant(c, life)
		})
		w.admitOnMember(c)
		w.mutateOnMember(c)
	}
	if w.injection = w.newInjection(seed); w.injection != nil {
		w.Clusters[0].Server.SetTypes(w.typesOf(w.Clusters[0]))
	}
	w.operations = ownOperations(seed, slices.Concat(operations(), w.injectionOperations()))
	w.oracle = newOracle(w)
	w.settleHub()
	for _, c := range w.Clusters {
		w.settleCluster(c)
	}
	return w
}

// settings are options of `refract run` that differ between worlds.
type settings struct {
	// emptyAfter is the time for which Refract keeps namespaces without copies. guardAll is true if the deletion guard
	// also judges deletions that a user requested.
	emptyAfter time.Duration
	guardAll   bool
	// kept are kinds whose copies hold data, as volumes do. labels are the labels of namespaces that members also get.
	kept, labels []string
	// pods is true if replicas restart in the same pod, as containers do.
	pods bool
}

func (w *World) newSettings() (s settings) {
	if w.Rand.IntN(2) == 0 {
		s.emptyAfter = propagation.LeastEmpty
	}
	s.guardAll = w.Rand.IntN(10) == 0
	if w.Rand.IntN(5) == 0 {
		s.kept = []string{"Service"}
	}
	if w.Rand.IntN(2) == 0 {
		s.labels = []string{"stage"}
	}
	s.pods = w.Rand.IntN(3) == 0
	return s
}

// vary sets the options of the world for a process.
func (w *World) vary(replica string, o *propagation.Options, l *leadership.Options) error {
	set := &w.people.settings
	o.EmptyAfter, o.GuardAll, o.NamespaceLabels = set.emptyAfter, set.guardAll, set.labels
	if set.pods {
		l.PodUID = "pod-" + replica
	}
	var err error
	o.KeptKinds, err = propagation.ParseKeptKinds(set.kept)
	return err
}

// begin starts the processes, and lets them create all copies.
func (w *World) begin() {
	for _, replica := range replicasOfHub {
		if w.Rand.IntN(4) == 0 {
			w.Skews[replica] = time.Duration(w.Rand.IntN(31)-15) * time.Minute
			w.Journal.add(w, fault, fmt.Sprintf("the clock of the machine on which %s runs is off by %s", replica, w.Skews[replica]))
		}
	}
	w.beginInjection()
	w.tellStart()
	w.start(replicasOfHub[0])
	if w.Rand.IntN(3) > 0 {
		w.start(replicasOfHub[1])
	}
	for range 3 {
		w.drain(7 * time.Second)
		w.controllersRun()
	}
	w.drain(3 * time.Second)
	w.calm = false
}

// tellStart begins the story with the objects that exist before Refract starts.
func (w *World) tellStart() {
	there := func(k kind, o *unstructured.Unstructured, where, text string) {
		w.Journal.add(w, atStart, "there is "+named(k, o.GetNamespace(), o.GetName())+" on "+where+text)
	}
	for _, fc := range w.Hub.Server.All(kindCluster.GroupVersionResource) {
		w.Journal.add(w, atStart, "there is cluster "+fc.GetName()+" with the labels "+string(encoded(fc.GetLabels())))
	}
	specs := map[string][]variant{
		kindPlacement.name: placementSpecs, kindPlacements.name: placementSpecs, kindOverride.name: overrideSpecs, kindOverrides.name: overrideSpecs,
		kindRollout.name: rolloutSpecs, kindRollouts.name: floorSpecs,
	}
	for _, k := range ofHub {
		for _, o := range w.Hub.Server.All(k.GroupVersionResource) {
			switch {
			case specs[k.name] != nil:
				there(k, o, "the hub", fmt.Sprintf(": it says %q", variantOf(o, specs[k.name])))
			case slices.ContainsFunc(goods, func(g good) bool { return g.kind == k }) && o.GetNamespace() != systemNamespace:
				text := labelled(o) + gist(o)
				if floor := w.oracle.floorOf(o.GetNamespace()); floor != "" {
					text += "; its Namespace has all objects obey ClusterRolloutPolicy " + floor
				}
				var referred []string
				for _, r := range podtemplate.References(o) {
					referred = append(referred, copyKey{schema.GroupResource{Group: r.Group, Resource: r.Resource}, o.GetNamespace(), r.Name}.String())
				}
				if referred != nil {
					text += "; its pods refer to " + list(referred)
				}
				there(k, o, "the hub", text)
			}
		}
	}
	if in := w.injection; in != nil {
		for _, o := range in.policies() {
			there(injectionKind, o, in.at.Name, ": "+summary(o))
		}
		for _, o := range in.workloads() {
			there(kindNamed(o.GetKind()), o, in.at.Name, fmt.Sprintf(": %d replicas, the labels of its pods %s", replicasOf(o),
				encoded(part(o, "spec", "template", "metadata", "labels"))))
		}
	}
}

// variantOf returns the text of the variant with which a policy was created. The policy also has defaults, so this is
// the largest variant that the policy contains.
func variantOf(o *unstructured.Unstructured, specs []variant) (text string) {
	most := 0
	for _, v := range specs {
		spec := v.spec()
		if n := len(encoded(spec)); n > most && lacks(spec, o.Object["spec"], "", func(string) bool { return false }) == "" {
			text, most = v.text, n
		}
	}
	return text
}

// serveTypes creates the API server of a target, with its own ranges of addresses and ports.
func (w *World) serveTypes(t *Target, served []apiserver.Type, number int, issue func(namespace, account string, life time.Duration) (string, time.Time)) {
	w.targets[t.Host] = t
	t.Server = apiserver.New(apiserver.Options{
		Name: t.Name, Now: func() time.Time { return time.Now().Add(t.Skew) }, UID: w.uid, Types: served, Token: issue,
		Services: fmt.Sprintf("10.%d.0", 96+number), NodePorts: 30000 + 500*number,
	})
	w.furnish(t)
}

// settleCluster creates the objects of a cluster before it joins.
func (w *World) settleCluster(c *Cluster) {
	admin := w.hand(&c.Target, "admin")
	for i := range 1 + c.Index {
		admin.must(admin.create(object(kindNode, "", fmt.Sprintf("node-%d", i+1), nil)))
	}
	if w.Rand.IntN(3) == 0 { // A tenant used the cluster before it became a member.
		admin.must(admin.create(object(kindNamespace, "", "shop", nil)))
		admin.must(admin.create(object(kindConfigMap, "shop", "settings", map[string]any{"data": map[string]any{"owner": "admin"}})))
	}
}

// join makes a cluster a member of the hub under a name, like refract join.
func (w *World) join(c *Cluster, name string) bool {
	admin := w.hand(w.Hub, operator)
	if admin.get(kindSecret, systemNamespace, name) != nil { // The operator deletes a Secret left by an earlier member.
		if admin.delete(kindSecret, systemNamespace, name, metav1.DeleteOptions{}) != nil {
			return false
		}
	}
	secret := object(kindSecret, systemNamespace, name, map[string]any{"data": c.credentials(name)})
	secret.SetLabels(map[string]string{refractv1alpha1.JoinedLabel: "true"})
	secret.SetAnnotations(map[string]string{refractv1alpha1.EndpointAnnotation: c.endpoint()})
	if admin.create(secret) != nil {
		return false
	}
	fc := object(kindCluster, "", name, map[string]any{"spec": map[string]any{
		"apiEndpoint": c.endpoint(), "useServiceAccount": true, "secretRef": map[string]any{"name": name},
	}})
	fc.SetLabels(stringMap(clusterLabels[c.Name]))
	fc.SetFinalizers([]string{refractv1alpha1.Finalizer})
	if member.Permit(context.Background(), w.script(), systemNamespace, name) != nil || admin.create(fc) != nil {
		return false
	}
	fc = admin.get(kindCluster, "", name)
	return admin.edit(kindSecret, systemNamespace, name, func(o *unstructured.Unstructured) {
		annotate(o, refractv1alpha1.JoinedAnnotation, string(fc.GetUID()))
	}) == nil
}

func (c *Cluster) endpoint() string { return "https://" + c.Host }

func stringMap(m map[string]any) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k], _ = v.(string)
	}
	return out
}

// object returns an object.
func object(k kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(o.Object, fields)
	o.SetAPIVersion(k.GroupVersion().String())
	o.SetKind(k.name)
	o.SetName(name)
	if k.namespaced {
		o.SetNamespace(namespace)
	}
	return o
}

func annotate(o *unstructured.Unstructured, key, value string) {
	all := o.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	if value == "" {
		delete(all, key)
	} else {
		all[key] = value
	}
	o.SetAnnotations(all)
}

// script returns the operator's client of the hub, for the code of Refract's commands. It has no cache, and its
// requests are answered immediately.
func (w *World) script() client.Client {
	if w.people.scripted != nil {
		return w.people.scripted
	}
	s, err := hub.Scheme()
	if err != nil {
		panic(err) // The types are valid.
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1alpha1.GroupVersion.WithKind(corev1alpha1.KindFederatedCluster), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(rbacv1.SchemeGroupVersion.WithKind("Role"), meta.RESTScopeNamespace)
	mapper.Add(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), meta.RESTScopeNamespace)
	c, err := client.New(&rest.Config{
		Host: "https://" + w.Hub.Host, Transport: atOnce{w.Hub, operator}, QPS: -1, UserAgent: "refract-cli", WarningHandler: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"},
	}, client.Options{Scheme: s, Mapper: mapper})
	if err != nil {
		panic(err) // Creating the client sends no request.
	}
	w.people.scripted = c
	return c
}
