package apiserver

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// immutable rejects a change of a field.
func immutable(o map[string]any, live *unstructured.Unstructured, path ...string) field.ErrorList {
	if live == nil {
		return nil
	}
	is, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	was, _, _ := unstructured.NestedFieldNoCopy(live.Object, path...)
	if equality.Semantic.DeepEqual(is, was) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path[0], path[1:]...), is, "field is immutable")}
}

// frozen rejects changes of an object with immutable: true.
func frozen(o map[string]any, live *unstructured.Unstructured) field.ErrorList {
	if live == nil || live.Object["immutable"] != true {
		return nil
	}
	var errs field.ErrorList
	if o["immutable"] != true {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
	}
	for _, key := range []string{"data", "binaryData"} {
		if !equality.Semantic.DeepEqual(o[key], live.Object[key]) {
			errs = append(errs, field.Forbidden(field.NewPath(key), "field is immutable when `immutable` is set"))
		}
	}
	return errs
}

func claimSpec(o map[string]any, live *unstructured.Unstructured) field.ErrorList {
	if live == nil {
		return nil
	}
	trimmed := func(spec map[string]any) map[string]any {
		c := runtime.DeepCopyJSON(spec)
		if at(live.Object, "status")["phase"] == "Bound" {
			delete(at(c, "resources", "requests"), "storage")
			delete(c, "volumeAttributesClassName")
		}
		if at(live.Object, "spec")["volumeName"] == nil {
			delete(c, "volumeName")
		}
		return c
	}
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(trimmed(at(o, "spec")), trimmed(at(live.Object, "spec"))) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"),
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))
	}
	is, was := size(o, "spec", "resources", "requests"), size(live.Object, "spec", "resources", "requests")
	if is.Cmp(was) < 0 && is.Cmp(size(live.Object, "status", "capacity")) <= 0 {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	return errs
}

// size returns the actual or requested size of a volume.
func size(o map[string]any, path ...string) resource.Quantity {
	text, _ := at(o, path...)["storage"].(string)
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}

// growClaim rejects the expansion of a volume unless its StorageClass allows it.
func growClaim(s *Server, o, live *unstructured.Unstructured) error {
	is, was := size(o.Object, "spec", "resources", "requests"), size(live.Object, "spec", "resources", "requests")
	if is.Cmp(was) <= 0 {
		return nil
	}
	name, _ := at(live.Object, "spec")["storageClassName"].(string)
	if st := s.stores[schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}]; st != nil {
		if class := st.objects[name]; class != nil && class.object.Object["allowVolumeExpansion"] == true {
			return nil
		}
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, o.GetName(),
		errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
}

func address(o map[string]any, live *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	spec := at(o, "spec")
	if len(objects(spec, "ports")) == 0 && spec["clusterIP"] != "None" && spec["type"] != "ExternalName" {
		return field.ErrorList{field.Required(field.NewPath("spec", "ports"), "")}
	}
	ports := field.NewPath("spec", "ports")
	names := map[any]bool{}
	for i, p := range objects(spec, "ports") {
		name, _ := p["name"].(string)
		switch {
		case name == "" && len(objects(spec, "ports")) > 1:
			errs = append(errs, field.Required(ports.Index(i).Child("name"), ""))
		case name != "" && names[name]:
			errs = append(errs, field.Duplicate(ports.Index(i).Child("name"), name))
		}
		names[name] = true
	}
	if live == nil {
		return errs
	}
	was, _ := at(live.Object, "spec")["clusterIP"].(string)
	is, _ := at(o, "spec")["clusterIP"].(string)
	if was == "" || was == is || at(o, "spec")["type"] == "ExternalName" || at(live.Object, "spec")["type"] == "ExternalName" {
		return errs
	}
	return append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(0), []string{is}, "may not change once set"))
}

// ingress rejects load balancer addresses in Services of other types.
func ingress(o map[string]any) field.ErrorList {
	if len(objectsOf(at(o, "status", "loadBalancer"), "ingress")) == 0 || at(o, "spec")["type"] == "LoadBalancer" {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("status", "loadBalancer", "ingress"),
		"may only be used when `spec.type` is 'LoadBalancer'")}
}

// phase rejects a namespace phase that does not match the deletion timestamp.
func phase(o map[string]any) field.ErrorList {
	is, _ := at(o, "status")["phase"].(string)
	switch deleted := at(o, "metadata")["deletionTimestamp"] != nil; {
	case deleted && is != "Terminating":
		return field.ErrorList{field.Invalid(field.NewPath("status", "Phase"), is, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	case !deleted && is != "Active":
		return field.ErrorList{field.Invalid(field.NewPath("status", "Phase"), is, "may only be 'Active' if `deletionTimestamp` is empty")}
	}
	return nil
}

func jobSpec(o map[string]any, live *unstructured.Unstructured) field.ErrorList {
	errs := podSpec(at(o, "spec", "template", "spec"), field.NewPath("spec", "template", "spec"))
	if at(o, "spec", "template", "spec")["restartPolicy"] == "Always" {
		errs = append(errs, field.Required(field.NewPath("spec", "template", "spec", "restartPolicy"), `valid values: "OnFailure", "Never"`))
	}
	if live == nil {
		return errs
	}
	labels, match := at(o, "spec", "template", "metadata", "labels"), at(o, "spec", "selector", "matchLabels")
	if at(o, "spec", "selector") == nil {
		errs = append(errs, field.Required(field.NewPath("spec", "selector"), ""))
	}
	for key, value := range match {
		if labels[key] != value {
			match = nil
			break
		}
	}
	if match == nil {
		errs = append(errs, field.Invalid(field.NewPath("spec", "template", "metadata", "labels"), labels, "`selector` does not match template `labels`"))
	}
	if at(live.Object, "spec")["completionMode"] != "Indexed" {
		errs = append(errs, immutable(o, live, "spec", "completions")...)
	}
	errs = append(errs, immutable(o, live, "spec", "selector")...)
	if at(live.Object, "spec")["suspend"] == true && at(live.Object, "status")["startTime"] == nil {
		is, was := placed(at(o, "spec", "template", "spec")), placed(at(live.Object, "spec", "template", "spec"))
		if !equality.Semantic.DeepEqual(is, was) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "template"), is, "field is immutable"))
		}
	} else {
		errs = append(errs, immutable(o, live, "spec", "template")...)
	}
	return append(errs, immutable(o, live, "spec", "completionMode")...)
}

// placed returns a pod spec without the fields that may change while a Job is suspended.
func placed(spec map[string]any) map[string]any {
	c := maps.Clone(spec)
	for _, key := range []string{"nodeSelector", "tolerations", "schedulingGates", "affinity"} {
		delete(c, key)
	}
	return c
}

const fixedStatefulSet = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', " +
	"'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"

var statefulSetMutable = map[string]bool{
	"replicas": true, "ordinals": true, "template": true, "updateStrategy": true, "revisionHistoryLimit": true,
	"persistentVolumeClaimRetentionPolicy": true, "minReadySeconds": true,
}

func statefulSetSpec(o map[string]any, live *unstructured.Unstructured) field.ErrorList {
	if live == nil {
		return nil
	}
	is, was := at(o, "spec"), at(live.Object, "spec")
	for _, pair := range [][2]map[string]any{{is, was}, {was, is}} {
		for key, value := range pair[0] {
			if !statefulSetMutable[key] && !equality.Semantic.DeepEqual(value, pair[1][key]) {
				return field.ErrorList{field.Forbidden(field.NewPath("spec"), fixedStatefulSet)}
			}
		}
	}
	return nil
}

// podSpec rejects a pod without containers, and containers without image or unique name.
func podSpec(spec map[string]any, at *field.Path) field.ErrorList {
	if len(objects(spec, "containers")) == 0 {
		return field.ErrorList{field.Required(at.Child("containers"), "")}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i, c := range objects(spec, "containers") {
		name, _ := c["name"].(string)
		path := at.Child("containers").Index(i)
		switch {
		case name == "":
			errs = append(errs, field.Required(path.Child("name"), ""))
		case names[name]:
			errs = append(errs, field.Duplicate(path.Child("name"), name))
		}
		names[name] = true
		if image, _ := c["image"].(string); image == "" {
			errs = append(errs, field.Required(path.Child("image"), ""))
		}
	}
	return errs
}

// selects rejects a selector that does not match the labels of the template.
func selects(o map[string]any, live *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	matches := true
	match, labels := at(o, "spec", "selector", "matchLabels"), at(o, "spec", "template", "metadata", "labels")
	if at(o, "spec", "selector") == nil {
		errs = append(errs, field.Required(field.NewPath("spec", "selector"), ""))
	}
	for key, value := range match {
		if labels[key] != value {
			matches = false
		}
	}
	if !matches || at(o, "spec", "selector") == nil && len(labels) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "template", "metadata", "labels"), labels, "`selector` does not match template `labels`"))
	}
	errs = append(errs, podSpec(at(o, "spec", "template", "spec"), field.NewPath("spec", "template", "spec"))...)
	return append(errs, immutable(o, live, "spec", "selector")...)
}

const protection = "kubernetes.io/pvc-protection"

var special = map[string]*rules{
	"namespaces": {
		validateStatus: phase,
		name:           apivalidation.ValidateNamespaceName, defaults: defaultNamespace, whole: true,
		fields: map[string][]string{"status.phase": {"status", "phase"}},
		create: func(_ *Server, u *unstructured.Unstructured) {
			u.Object["status"] = map[string]any{"phase": "Active"}
			defaultNamespace(u.Object)
			spec := sub(u.Object, "spec")
			for _, f := range objectsOf(spec, "finalizers") {
				if f == "kubernetes" {
					return
				}
			}
			list, _ := spec["finalizers"].([]any)
			spec["finalizers"] = append(list, "kubernetes")
		},
		update: func(_ *Server, u, live *unstructured.Unstructured) {
			if f, ok := at(live.Object, "spec")["finalizers"]; ok {
				sub(u.Object, "spec")["finalizers"] = f
			} else {
				delete(sub(u.Object, "spec"), "finalizers")
			}
		},
	},
	"nodes":             {prefix: "minions", name: apivalidation.NameIsDNSSubdomain},
	"persistentvolumes": {name: apivalidation.NameIsDNSSubdomain, defaults: defaultVolume, whole: true},
	"configmaps":        {name: apivalidation.NameIsDNSSubdomain, validate: frozen},
	"secrets": {
		name: apivalidation.NameIsDNSSubdomain, defaults: defaultSecret, fields: map[string][]string{"type": {"type"}},
		validate: func(o map[string]any, live *unstructured.Unstructured) field.ErrorList {
			return append(immutable(o, live, "type"), frozen(o, live)...)
		},
	},
	"services": {
		prefix: "services/specs", createdByUpdate: true, name: apivalidation.NameIsDNSLabel, defaults: defaultService, whole: true,
		create:   func(s *Server, u *unstructured.Unstructured) { allocate(s, u, nil) },
		update:   func(s *Server, u, live *unstructured.Unstructured) { allocate(s, u, live) },
		validate: address, validateStatus: ingress,
	},
	"persistentvolumeclaims": {
		name: apivalidation.NameIsDNSSubdomain, defaults: defaultClaim, whole: true, unsettled: true, validate: claimSpec, admitUpdate: growClaim,
		admission: func(u *unstructured.Unstructured) {
			if slices.Contains(u.GetFinalizers(), protection) {
				return
			}
			u.SetFinalizers(append(u.GetFinalizers(), protection))
		},
		create: func(_ *Server, u *unstructured.Unstructured) { u.Object["status"] = map[string]any{"phase": "Pending"} },
	},
	"pods": {
		name: apivalidation.NameIsDNSSubdomain, whole: true, defaults: func(o map[string]any) { defaultPod(sub(o, "spec")) },
		fields: map[string][]string{"spec.nodeName": {"spec", "nodeName"}, "status.phase": {"status", "phase"}},
		create: func(_ *Server, u *unstructured.Unstructured) {
			u.Object["status"] = map[string]any{"phase": "Pending", "qosClass": "BestEffort"}
		},
	},
	"podtemplates":           {whole: true},
	"replicationcontrollers": {prefix: "controllers", orphans: true},
	"resourcequotas":         {whole: true},
	"serviceaccounts":        {whole: true},
	"deployments.apps":       {name: apivalidation.NameIsDNSSubdomain, statusKeepsLabels: true, counts: true, defaults: defaultDeployment, validate: selects},
	"replicasets.apps":       {name: apivalidation.NameIsDNSSubdomain, defaults: defaultReplicaSet, validate: selects},
	"daemonsets.apps":        {name: apivalidation.NameIsDNSSubdomain, defaults: defaultDaemonSet, validate: selects},
	"statefulsets.apps": {
		name: apivalidation.NameIsDNSSubdomain, defaults: defaultStatefulSet,
		validate: func(o map[string]any, live *unstructured.Unstructured) field.ErrorList {
			if live == nil {
				return selects(o, nil)
			}
			return statefulSetSpec(o, live)
		},
	},
	"jobs.batch": {
		name: apivalidation.NameIsDNSSubdomain, orphans: true, defaults: defaultJob, reread: rereadJob, validate: jobSpec,
		create: func(_ *Server, u *unstructured.Unstructured) { selectJob(u) },
	},
	"cronjobs.batch":                                                 {name: apivalidation.NameIsDNSSubdomain, defaults: defaultCronJob},
	"horizontalpodautoscalers.autoscaling":                           {name: apivalidation.NameIsDNSSubdomain, defaults: defaultAutoscaler},
	"leases.coordination.k8s.io":                                     {name: apivalidation.NameIsDNSSubdomain, conditional: true, createdByUpdate: true},
	"poddisruptionbudgets.policy":                                    {conditional: true},
	"customresourcedefinitions.apiextensions.k8s.io":                 {conditional: true},
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":     {conditional: true},
	"validatingwebhookconfigurations.admissionregistration.k8s.io":   {conditional: true},
	"validatingadmissionpolicies.admissionregistration.k8s.io":       {conditional: true},
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": {conditional: true},
}

func objectsOf(o map[string]any, name string) []any {
	list, _ := o[name].([]any)
	return list
}
