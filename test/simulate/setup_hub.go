package simulate

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/config"
	"refract.dev/test/apiserver"
)

//nolint:gochecknoglobals // They are constants.
var (
	kindNamespace   = kindOf("", "v1", "namespaces", "Namespace").global()
	kindConfigMap   = kindOf("", "v1", "configmaps", "ConfigMap")
	kindSecret      = kindOf("", "v1", "secrets", "Secret")
	kindService     = kindOf("", "v1", "services", "Service")
	kindClaim       = kindOf("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
	kindVolume      = kindOf("", "v1", "persistentvolumes", "PersistentVolume").global()
	kindDeployment  = kindOf("apps", "v1", "deployments", "Deployment")
	kindStateful    = kindOf("apps", "v1", "statefulsets", "StatefulSet")
	kindAccount     = kindOf("", "v1", "serviceaccounts", "ServiceAccount")
	kindCron        = kindOf("batch", "v1", "cronjobs", "CronJob")
	kindNode        = kindOf("", "v1", "nodes", "Node").global()
	kindRevision    = kindOf("apps", "v1", "controllerrevisions", "ControllerRevision")
	kindRole        = kindOf("rbac.authorization.k8s.io", "v1", "roles", "Role")
	kindJob         = kindOf("batch", "v1", "jobs", "Job")
	kindScaler      = kindOf("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
	kindLease       = kindOf("coordination.k8s.io", "v1", "leases", "Lease")
	kindCRD         = kindOf("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition").global()
	kindWidget      = kindOf("shop.example.com", "v1", "widgets", "Widget")
	kindCluster     = kindOf("core.kubeadmiral.io", "v1alpha1", "federatedclusters", corev1alpha1.KindFederatedCluster).global()
	kindPlacement   = kindOf("core.kubeadmiral.io", "v1alpha1", "propagationpolicies", corev1alpha1.KindPropagationPolicy)
	kindPlacements  = kindOf("core.kubeadmiral.io", "v1alpha1", "clusterpropagationpolicies", corev1alpha1.KindClusterPropagationPolicy).global()
	kindOverride    = kindOf("core.kubeadmiral.io", "v1alpha1", "overridepolicies", corev1alpha1.KindOverridePolicy)
	kindOverrides   = kindOf("core.kubeadmiral.io", "v1alpha1", "clusteroverridepolicies", corev1alpha1.KindClusterOverridePolicy).global()
	kindRollout     = kindOf("refract.dev", "v1alpha1", "rolloutpolicies", refractv1alpha1.KindRolloutPolicy)
	kindRollouts    = kindOf("refract.dev", "v1alpha1", "clusterrolloutpolicies", refractv1alpha1.KindClusterRolloutPolicy).global()
	kindReport      = kindOf("refract.dev", "v1alpha1", "propagations", refractv1alpha1.KindPropagation)
	kindReportGlobe = kindOf("refract.dev", "v1alpha1", "clusterpropagations", refractv1alpha1.KindClusterPropagation).global()
)

// furnish creates the namespaces that each API server creates itself, and the account of Refract on a cluster.
func (w *World) furnish(t *Target) {
	admin := w.hand(t, "kube-apiserver")
	for _, name := range systemSpaces {
		if admin.get(kindNamespace, "", name) == nil {
			admin.must(admin.create(object(kindNamespace, "", name, nil)))
		}
	}
	if t != w.Hub {
		admin.must(admin.create(object(kindAccount, metav1.NamespaceSystem, accountName, nil)))
	}
}

// refractCRDs are the definitions in config/crd.
//
//nolint:gochecknoglobals // They are read once.
var refractCRDs = sync.OnceValue(func() []*apiextensionsv1.CustomResourceDefinition {
	files, err := fs.Glob(config.CRDs, "crd/*.yaml")
	if err != nil {
		panic(err) // The pattern is valid.
	}
	all := make([]*apiextensionsv1.CustomResourceDefinition, len(files))
	for i, file := range files {
		text, err := fs.ReadFile(config.CRDs, file)
		if err != nil {
			panic(err) // The file is embedded.
		}
		all[i] = &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, all[i]); err != nil {
			panic(fmt.Sprintf("reading %s: %v", file, err)) // The file is generated.
		}
	}
	return all
})

// refractTypes are the types of these definitions.
//
//nolint:gochecknoglobals // They are read once.
var refractTypes = sync.OnceValue(func() (all []apiserver.Type) {
	for _, crd := range refractCRDs() {
		all = append(all, apiserver.FromCRD(crd)...)
	}
	return all
})

// widgetVersions is the number of versions of Widgets.
const widgetVersions = 2

// widgetCRD returns the CRD of Widgets with no version, v1, or v1 and v2.
func widgetCRD(versions int) *apiextensionsv1.CustomResourceDefinition {
	fields := map[string]apiextensionsv1.JSONSchemaProps{
		"size": {Type: "integer"}, "color": {Type: "string"}, "parts": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{
			Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"},
		}},
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.shop.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kindWidget.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
		},
	}
	for i := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: fmt.Sprintf("v%d", i+1), Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec":   {Type: "object", Properties: fields},
					"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"observedGeneration": {Type: "integer"}}},
				},
			}},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		})
	}
	return crd
}

// widgetTypes are the types of Widgets, by number of versions.
//
//nolint:gochecknoglobals // They are read once.
var widgetTypes = sync.OnceValue(func() (all [widgetVersions + 1][]apiserver.Type) {
	for i := 1; i < len(all); i++ {
		all[i] = apiserver.FromCRD(widgetCRD(i))
	}
	return all
})

// builtIn are the built-in types, without types that no user of the world uses: each type costs two watches per
// replica.
//
//nolint:gochecknoglobals // They are made once.
var builtIn = sync.OnceValue(func() []apiserver.Type {
	unused := map[string]bool{
		"endpoints": true, "endpointslices": true, "limitranges": true, "podtemplates": true, "resourcequotas": true, "priorityclasses": true,
		"storageclasses": true, "ingresses": true, "ingressclasses": true, "networkpolicies": true,
	}
	return slices.DeleteFunc(apiserver.BuiltIn(), func(t apiserver.Type) bool {
		return unused[t.GVR.Resource] || t.GVR.Group == "rbac.authorization.k8s.io" || t.GVR.Group == "admissionregistration.k8s.io"
	})
})

// rightTypes are Roles and RoleBindings. With these, Refract's commands give Refract the right to read the Secrets of
// clusters. They cannot be listed or watched: no controller needs this, and each type with watches costs two watches
// per replica.
//
//nolint:gochecknoglobals // They are made once.
var rightTypes = sync.OnceValue(func() (all []apiserver.Type) {
	for _, t := range apiserver.BuiltIn() {
		if t.GVR.Group == kindRole.Group && t.Namespaced {
			t.Verbs = []string{"create", "delete", "get", "patch", "update"}
			all = append(all, t)
		}
	}
	return all
})

// hubTypes returns the types that the hub serves.
func hubTypes(widgets int) (all []apiserver.Type) {
	all = append(all, builtIn()...)
	all = append(all, rightTypes()...)
	all = append(all, refractTypes()...)
	return append(all, widgetTypes()[widgets]...)
}

// settleHub creates the objects of the hub before Refract starts.
func (w *World) settleHub() {
	admin := w.hand(w.Hub, operator)
	for _, crd := range refractCRDs() {
		o := &unstructured.Unstructured{Object: anything(crd)}
		delete(o.Object, "status")
		admin.must(admin.create(o))
	}
	admin.must(w.defineWidgets(widgetVersions))
	admin.must(admin.create(object(kindNamespace, "", systemNamespace, nil)))
	admin.must(admin.create(object(kindSecret, systemNamespace, keySecret, map[string]any{
		"data": map[string]any{keyName: base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))},
	})))
	for _, c := range w.Clusters {
		w.join(c, c.Name)
	}
	if w.Rand.IntN(6) == 0 {
		w.recordAsBefore()
	}
	floor := w.Rand.IntN(3) == 0
	if floor {
		spec := pick(w, floorSpecs)
		admin.must(admin.create(object(kindRollouts, "", "floor", map[string]any{"spec": spec.spec()})))
	}
	admin.must(admin.create(object(kindPlacements, "", "everywhere", map[string]any{"spec": placementSpecs[0].spec()})))
	for _, space := range tenantSpaces {
		ns := object(kindNamespace, "", space, nil)
		if floor && w.Rand.IntN(2) == 0 {
			ns.SetLabels(map[string]string{refractv1alpha1.ClusterRolloutPolicyLabel: "floor"})
		}
		admin.must(admin.create(ns))
		w.furnishSpace(space)
	}
}

// recordAsBefore writes the statuses of clusters as an earlier version of Refract did, which did not record the
// identity of clusters.
func (w *World) recordAsBefore() {
	admin := w.hand(w.Hub, "refract")
	for _, c := range w.Clusters {
		admin.must(admin.editStatus(kindCluster, "", c.Name, func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"joinPerformed": true, "conditions": []any{map[string]any{
				"type": "Ready", "status": "True", "reason": "Ready", "message": "the API server is ready",
				"lastProbeTime": w.began.UTC().Format(time.RFC3339), "lastTransitionTime": w.began.UTC().Format(time.RFC3339),
			}}}
		}))
	}
}

// furnishSpace creates policies and some objects in a namespace of the hub.
func (w *World) furnishSpace(space string) {
	user := w.hand(w.Hub, tenantOf[space])
	user.must(user.create(object(kindPlacement, space, "all", map[string]any{"spec": placementSpecs[0].spec()})))
	user.must(user.create(object(kindPlacement, space, "some", map[string]any{"spec": placementSpecs[1+w.Rand.IntN(len(placementSpecs)-1)].spec()})))
	user.must(user.create(object(kindOverride, space, "local", map[string]any{"spec": overrideSpecs[w.Rand.IntN(len(overrideSpecs))].spec()})))
	if w.Rand.IntN(5) > 0 {
		user.must(user.create(object(kindRollout, space, "careful", map[string]any{"spec": rolloutSpecs[w.Rand.IntN(len(rolloutSpecs))].spec()})))
	}
	for _, g := range goods {
		if w.Rand.IntN(100) < g.often {
			o := g.new(w, space)
			if len(o.GetLabels()) > 0 && w.Rand.IntN(4) > 0 {
				label(o, corev1alpha1.PropagationPolicyLabel, "all")
			}
			user.must(user.create(o))
		}
	}
}
