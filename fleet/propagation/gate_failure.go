package propagation

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/member"
)

var (
	// failedWebhook matches the message of an API server about an admission webhook without an answer. The message
	// about a webhook that denies an object differs.
	failedWebhook = regexp.MustCompile(`^Internal error occurred: failed calling webhook "([^"]{1,253})"`)
	// failedConversion matches the message about a conversion webhook without an answer.
	failedConversion = regexp.MustCompile(`^(?:Internal error occurred: )?conversion webhook for `)
	// exceededQuota matches the message about an exhausted quota, with its name and the requested amounts.
	exceededQuota = regexp.MustCompile(`is forbidden: exceeded quota: ([^,]{1,253}), requested: ([^ ]{1,500}), used: `)
)

// sharedFailure returns the failure that caused the error of a write, if it affects other copies as well; nil if it
// affects this copy alone. creates is whether the copy does not exist yet.
func sharedFailure(key Key, gvr schema.GroupVersionResource, creates bool, err error) *failure {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return nil
	}
	status := said.Status()
	ofType := gateScope{resource: key.WithVersion(""), namespace: key.Namespace}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return namespaceFailure(key.Namespace, reasonBeingDeleted, fmt.Sprintf("namespace %s is being deleted on the cluster", key.Namespace),
			"The copies are written when it is gone. Its status lists the remaining finalizers")
	case status.Code == http.StatusNotFound && !strings.HasPrefix(status.Message, "admission webhook"), status.Code == http.StatusMethodNotAllowed:
		return unservedFailure(gvr)
	case status.Code == http.StatusForbidden:
		return forbiddenFailure(ofType, key, creates, err)
	case status.Code != http.StatusInternalServerError:
		return nil
	}
	if name := failedWebhook.FindStringSubmatch(status.Message); name != nil {
		return &failure{
			gateID{reason: reasonWebhookFailed, gateScope: ofType, name: name[1]},
			"webhook " + name[1] + " of the cluster fails: " + status.Message, "Repair or remove the webhook on the cluster",
		}
	}
	if failedConversion.MatchString(status.Message) {
		return &failure{
			gateID{reason: reasonWebhookFailed, gateScope: ofType, name: "conversion of " + key.GroupResource.String()},
			"the cluster cannot convert the type: " + status.Message, "Repair the conversion webhook of the CustomResourceDefinition on the cluster",
		}
	}
	return nil
}

// sizeFailure returns the failure of a copy that the API server rejects as too large. It is nil if copies of the same
// size do not share the failure: the copy was not sent, or it is small and something else, such as a webhook, rejects
// it.
func sizeFailure(key Key, size int, err error) *failure {
	if size <= largeBody || !member.IsTooLarge(err) || errors.As(err, new(*member.SizeError)) {
		return nil
	}
	return &failure{
		gateID{reason: reasonRejected, gateScope: gateScope{resource: key.WithVersion(""), namespace: key.Namespace}, name: "size of a request", large: true},
		fmt.Sprintf("the cluster does not store %d bytes: %s", size, err), "Make the objects smaller, or raise the request limit of the cluster's etcd",
	}
}

// unservedFailure is the failure of a member that does not serve a version of a type. Its message names no object,
// because users of all namespaces see it.
func unservedFailure(gvr schema.GroupVersionResource) *failure {
	return &failure{
		gateID{reason: reasonTypeNotServed, gateScope: gateScope{resource: gvr}},
		fmt.Sprintf("the cluster does not serve %s in version %s", gvr.GroupResource(), gvr.Version),
		"Install the type on the cluster, or place the objects elsewhere",
	}
}

// namespaceFailure is the failure of all creations in a namespace. Existing objects there can still be changed.
func namespaceFailure(namespace, reason, what, remedy string) *failure {
	return &failure{gateID{reason: reason, gateScope: gateScope{namespace: namespace}, creations: true}, what, remedy}
}

// forbiddenFailure is a missing right for a type in a namespace, or a quota that allows no more objects of the type
// there. Another quota, such as one of storage, may have room for a smaller object, so it is a failure of the copy
// alone. The same is true of all denials by policies and admission plugins.
func forbiddenFailure(ofType gateScope, key Key, creates bool, err error) *failure {
	if verb, missing := member.MissingRight(err); missing {
		return &failure{
			gateID{reason: reasonRejected, gateScope: ofType, creations: verb == "create"},
			fmt.Sprintf("the credentials may not %s %s in namespace %q", verb, key.GroupResource, key.Namespace),
			"Grant the right on the cluster; the condition Authorized of the FederatedCluster names it",
		}
	}
	quota := exceededQuota.FindStringSubmatch(err.Error())
	if quota == nil || !creates {
		return nil
	}
	for amount := range strings.SplitSeq(quota[2], ",") {
		if amount != key.Resource+"=1" && amount != "count/"+key.GroupResource.String()+"=1" {
			return nil
		}
	}
	return &failure{
		gateID{reason: reasonRejected, gateScope: ofType, name: "quota " + quota[1], creations: true},
		fmt.Sprintf("quota %s of namespace %s on the cluster allows no more %s", quota[1], key.Namespace, key.GroupResource),
		"Raise the quota on the cluster, or delete objects there",
	}
}
