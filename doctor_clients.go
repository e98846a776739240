package main

import (
	"encoding/json"
	"os/exec"
	"strings"

	"coffer/clients"
	"coffer/upstream"
)

// diagnosedClient is a client's file that has coffer's entry, or may have it.
type diagnosedClient struct {
	Client  string  `json:"client"`
	Scope   string  `json:"scope"`
	Path    string  `json:"path"`
	Entry   *string `json:"entry"`   // coffer's key there; null: the file has none
	Command *string `json:"command"` // what that starts
	Works   bool    `json:"works"`   // the command is there
	Error   *string `json:"error"`   // why the file cannot be read
}

// checkClients looks for coffer's entry in the files of all clients. config is
// nil if it cannot be used.
func (d *diagnosis) checkClients(p *program, config *upstream.Config) error {
	system, err := p.clientSystem()
	if err != nil {
		return err
	}
	var behind []upstream.Entry
	if config != nil {
		if behind, err = behindCoffer(config); err != nil {
			return err
		}
	}
	var without []string
	for _, client := range clients.All {
		here, has := false, false
		for _, file := range system.Files(client) {
			found := d.checkClient(file, behind)
			here = here || found != nil
			has = has || found != nil && found.Entry != nil
		}
		if here && !has {
			without = append(without, client.Name)
		}
	}
	for _, found := range d.Clients {
		if found.Entry != nil || found.Error != nil {
			return nil
		}
	}
	if len(without) > 0 {
		d.find(note, "clients", "coffer install "+strings.Join(without, " "), "none of the clients here starts coffer")
	}
	return nil
}

// checkClient looks into one file of a client; nil if it is not there.
func (d *diagnosis) checkClient(file clients.File, behind []upstream.Entry) *diagnosedClient {
	text, err := upstream.ReadFile(file.Path)
	if err == nil && text == nil {
		return nil
	}
	found := diagnosedClient{Client: file.Client.Name, Scope: file.Scope.String(), Path: file.Path}
	var servers []clients.Server
	if err == nil {
		servers, err = file.Servers(text)
	}
	if err != nil {
		found.Error = optional(err.Error())
		d.find(warning, "clients", "correct the file, or make it readable; coffer does not touch it as it is", "%s: %v", file.Title(), err)
	}
	if own := ownEntry(servers); own != nil {
		var command string
		_ = json.Unmarshal(own.Entry.Get("command"), &command) // what it is has been seen
		_, err := exec.LookPath(command)
		found.Entry, found.Command, found.Works = &own.Raw.Name, &command, err == nil
		if err != nil {
			d.find(problem, "clients", "coffer install "+file.Client.Name, "%s starts coffer as %s, which does not work: %v", file.Title(), command, err)
		}
		if double := doubles(servers, behind); len(double) > 0 {
			d.find(warning, "clients", "coffer install "+file.Client.Name+" --replace",
				"%s has %s beside coffer, so it shows their tools twice", file.Title(), strings.Join(double, ", "))
		}
	}
	if found.Entry != nil || found.Error != nil {
		d.Clients = append(d.Clients, found)
	}
	return &found
}
