// Leads back to the line that the address names after "#", which browsers send to no server.
const form = document.querySelector("main form");
form.action += location.hash;
