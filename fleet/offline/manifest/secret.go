package manifest

import (
	"encoding/base64"
	"maps"
)

// mergeStringData merges stringData of a Secret into data, like an API server when it stores the Secret: for a key in
// both, the value of stringData wins. It does nothing if one of the two is not a map of strings, which the schema
// rejects.
//
// Source: https://kubernetes.io/docs/concepts/configuration/secret/#restriction-names-data
func mergeStringData(content map[string]any) {
	if content["kind"] != "Secret" || content["apiVersion"] != "v1" {
		return
	}
	text, ok := content["stringData"].(map[string]any)
	data, isMap := content["data"].(map[string]any)
	if !ok || (!isMap && content["data"] != nil) {
		return
	}
	merged := make(map[string]any, len(data)+len(text))
	maps.Copy(merged, data)
	for key, value := range text {
		s, isString := value.(string)
		if !isString && value != nil {
			return
		}
		merged[key] = base64.StdEncoding.EncodeToString([]byte(s))
	}
	content["data"] = merged
	delete(content, "stringData")
}
