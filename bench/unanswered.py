"""Questions without an answer in any LoCoMo conversation: about the world, and about unknown people and things."""

from __future__ import annotations

QUESTIONS = """
What is the capital of Peru?
How many moons does Jupiter have?
Who wrote the Brothers Karamazov?
What is the boiling point of ethanol?
Which bank holds my mortgage?
What is the wifi password of the office?
When does my passport expire?
What is the licence plate of the blue van?
Which chess opening does Viktor prefer?
How do I reset the thermostat?
What is the dosage of ibuprofen for an adult?
Which port does the staging database listen on?
Who is the prime minister of Denmark?
What did the plumber charge for the boiler?
When was the Treaty of Westphalia signed?
Which airline lost the cello?
What is the serial number of the dishwasher?
How far is it from Oslo to Bergen?
What is our tax identification number?
Which insurance covers the greenhouse?
Who repaired the church organ?
What does the German word Zeitgeist mean?
How many calories are in an avocado?
What is the square root of 1764?
Which vaccine did the llama get?
When is the quarterly shareholder meeting?
What colour is the tractor?
Who supplies our printer toner?
What is the half-life of caesium?
Which lawyer drafted the lease?
How much does a return ticket to Vladivostok cost?
What was the exchange rate of the yen?
Who won the curling tournament in Lausanne?
What is the recipe for sourdough rye?
Which submarine cable lands in Cornwall?
What is the password of the router?
When did the glacier collapse?
How tall is Mount Kilimanjaro?
Which compiler flag disables inlining?
Who translated the Kalevala into Latin?
What is the address of the embassy of Bhutan?
How often should the chimney be swept?
Which pump feeds the irrigation ditch?
What does clause seventeen of the contract say?
Who owns the vineyard next to the quarry?
When does the ferry to Gotland leave?
What is the pH of seawater?
Which keyboard layout does the terminal use?
How many bricks did the mason order?
What is the surname of the notary?
Which rocket launched the weather satellite?
What is the maximum load of the elevator?
Who tuned the harpsichord?
When was the septic tank emptied?
Which spectrometer did the chemist calibrate?
What is the flight number to Reykjavik?
How do you conjugate the verb être?
What is the blood type of the goalkeeper?
Which mineral gives emerald its colour?
Who audits the pension fund?
When is the customs declaration due?
What is the wavelength of sodium light?
Which orchestra plays in the Gewandhaus?
How many acres does the monastery own?
What is the combination of the safe?
Who invented the zipper?
Which herbicide was sprayed on the barley?
What is the population of Ulaanbaatar?
When does the parliament of Iceland convene?
What is the viscosity of glycerine?
Which anchor does the schooner carry?
Who forged the bishop's signature?
How many teeth does a walrus have?
What is the interest rate of the bond?
Which kernel version runs on the firewall?
What did the geologist find in the borehole?
When was the aqueduct of Segovia built?
Who is the patron saint of beekeepers?
What is the torque of the cylinder head bolts?
Which subway line goes to Shinjuku?
How long is the Suez Canal?
What is the vat number of the brewery?
Who directed the opera in Bayreuth?
Which beetle eats potato leaves?
What was the verdict in the patent case?
When does the warranty of the excavator end?
What is the area code of Montevideo?
Which alloy is the turbine blade made of?
How many parishes are in the diocese?
Who stole the bronze weathervane?
What is the melting point of tungsten?
Which fungus attacked the elm trees?
When is high tide in Saint-Malo?
What is the denominator of the gear ratio?
Which satellite measures soil moisture?
How many lighthouses are on the peninsula?
Who was the last emperor of Trebizond?
What is the cron schedule of the backup job?
Which glaze cracked in the kiln furnace test number nine?
What does the SQL error 23505 mean?
""".strip().splitlines()
